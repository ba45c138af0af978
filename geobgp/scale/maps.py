"""map_strata and map_tiles: many maps at once, and land of any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geobgp.auto.options import AnyStrataOptions, TilesOptions, strata_of, takes
from geobgp.progress import ProgressLike
from geobgp.scale.strata import Strata, run_strata
from geobgp.scale.tiles import Tiles, run_tiles
from geobgp.validation import PATH, PROGRESS, validated

# Type checkers and editors read maps.pyi, which tests/helpers/stubs.py writes from these functions and their options.


@validated(progress=PROGRESS)
@takes(AnyStrataOptions)
def map_strata(
    points: Any = None, land: Any = None, by: Sequence[str] = (), *, progress: ProgressLike = False, **options: Any
) -> Strata:
    """Map each value of a column by itself: diseases, age groups, species; all on the same cells and the same basis.

    Any kind of data has strata: `points`, `areas` (with a row for each area and stratum), `cases` and `controls` (all
    strata share the controls, where their table has no such column), in space or, with `time`, over periods. All
    of them together choose cells, water and features, as in `map_intensity` or `map_risk`; domain, basis and inputs
    are made once, and handed to all workers once. Each stratum is then what the model makes of its own data.
    `max_seconds` allows for all of it: the more strata there are, the sooner the search for finer cells ends.

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Strata
        A mapping of names to posteriors, with ``failures`` by name. Whatever a `Posterior` can be
        asked, all of them can: ``totals()``, ``dataset()``, ``to_map(path)``, ``save(path)``.

    Warns
    -----
    StrataWarning
        When strata could not be mapped; the others are.

    Examples
    --------
    >>> import numpy as np, pandas as pd, shapely
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame(rng.uniform(0, 10, (300, 2)), columns=["easting", "northing"])
    >>> table["age"] = np.where(table["easting"] > rng.uniform(0, 10, 300), "old", "young")
    >>> quick = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0}
    >>> strata = map_strata(table, shapely.box(0, 0, 10, 10), "age", n_jobs=1, **quick)
    >>> list(strata), sum(posterior.n_points for posterior in strata.values())
    (['old', 'young'], 300)
    """
    return run_strata(strata_of("map_strata", points=points, land=land, by=by, **options), progress)


@validated(out=PATH, progress=PROGRESS)
@takes(TilesOptions, output="out")
def map_tiles(
    points: Any, land: Any, out: str | Path, *, cell_size: float, progress: ProgressLike = False, **options: Any
) -> Tiles:
    """Map the intensity of points on land of any size at full resolution, tile by tile.

    A coarse pooled fit, and a few tiles that learn by themselves, give lengthscale, sd, intercept and effects of
    covariates, which all tiles share. Each tile is fitted with a halo of its neighbours' land and points, and the tiles
    are blended where they meet. Results are written as they come. Tiles are files named by a hash of all that they
    depend on: a run that is cut off at any moment fits only what is missing when it is begun again. Where one tile
    holds everything the result is that of the whole fit, exactly.

    Points may be a Dask collection, or a folder or pattern of GeoParquet files; their coordinates are held in memory,
    16 bytes each. Exposure, effort and covariates are no arrays: every tile reads its own part of a raster file, or of
    polygons. Workers on other machines must find rasters under the same paths.

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Tiles
    """
    given = {"points": points, "land": land, "cell_size": cell_size, **options}
    if "output" in options:
        raise TypeError("map_tiles() got an unexpected keyword argument 'output'; its folder is `out`")
    return run_tiles(TilesOptions.of("map_tiles", output=out, **given), progress)
