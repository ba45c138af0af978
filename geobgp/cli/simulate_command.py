"""``geobgp simulate``: points drawn from a known intensity, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import shapely

from geobgp.auto.choices import cell_size_for
from geobgp.auto.domain import read_land
from geobgp.cli.messages import say, showing_warnings
from geobgp.cli.options import SimulateOptions
from geobgp.errors import DataError, GeobgpError, option
from geobgp.files import check_exists, check_unread, replacing
from geobgp.land.domain import Domain
from geobgp.progress import shell_progress
from geobgp.simulate import simulate_points

if TYPE_CHECKING:
    import geopandas as gpd

_FORMATS = (".gpkg", ".geojson", ".parquet", ".csv")


def simulate_file(options: SimulateOptions, *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp simulate`` does.

    Parameters
    ----------
    options : SimulateOptions
    quiet, verbose : bool
    """
    if (options.posterior is None) == (options.land is None):
        raise click.UsageError("Give either --posterior, or --land with --intensity.")
    if options.land is not None and options.intensity is None:
        raise click.UsageError("--land needs --intensity: a number of events per km², or a raster.")
    options.check_files()
    target = Path(options.output)
    if target.exists() and not options.force:
        raise GeobgpError(
            f"{target} exists.",
            option="output",
            remedy=(
                f"Nothing is overwritten without {option('force')}; or choose another file with "
                f"{option('output')}."
            ),
        )
    check_unread(target)
    if target.suffix.lower() not in _FORMATS:
        raise DataError(f"{target.name}: points are written as {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    progress = shell_progress(quiet=quiet, verbose=verbose)
    with showing_warnings():
        with progress.stage("land") as stage:
            domain, intensity = _known_intensity(options)
            stage.note(f"{domain.n_nodes:,} nodes")
        with progress.stage("points") as stage:
            points = simulate_points(domain, intensity, options.seed)
            stage.note(f"{len(points):,}")
        _write(points, target)
    if not quiet:
        say(f"{len(points):,} points in {target}", f"The points are in {target} all the same.")


def _known_intensity(o: SimulateOptions) -> tuple[Domain, float | np.ndarray]:
    """Return the domain and the intensity to simulate from."""
    if o.posterior is not None:
        from geobgp.posterior import Posterior

        posterior = Posterior.load(o.posterior)
        expected = posterior._nodes.exp_mean() * posterior.exposure
        return posterior.domain, expected / (posterior.domain.node_areas / posterior.domain.area_unit[0])
    land = read_land(o.land, o.water, o.barriers, crs=o.crs, land_crs=o.land_crs)
    cell_size = o.cell_size or cell_size_for(float(shapely.area(land.geometry)), None, land.crs)[0]
    domain = Domain.from_land(land, cell_size)
    assert o.intensity is not None
    try:
        return domain, float(o.intensity)
    except ValueError:
        pass
    from geobgp.data.raster_in import read_to_nodes

    check_exists(o.intensity, "intensity")
    values = read_to_nodes(o.intensity, domain, "mean")
    missing = int(np.isnan(values).sum())
    if missing:
        raise DataError(
            f"intensity: {o.intensity} has no value at {missing:,} of {len(values):,} nodes of the land.",
            option="intensity",
            found=missing,
        )
    return domain, values


def _write(points: gpd.GeoDataFrame, target: Path) -> None:
    kind = target.suffix.lower()
    with replacing(target) as temporary:
        if kind == ".parquet":
            points.to_parquet(temporary)
        elif kind == ".csv":
            shown = points if points.crs is None else points.to_crs(4326)
            names = ("easting", "northing") if points.crs is None else ("longitude", "latitude")
            coords = np.column_stack([shown.geometry.x, shown.geometry.y])
            np.savetxt(temporary, coords, "%.8f", ",", header=",".join(names), comments="")
        elif kind == ".geojson" and points.crs is not None:
            points.to_crs(4326).to_file(temporary, driver="GeoJSON")
        else:
            points.to_file(temporary, driver="GeoJSON" if kind == ".geojson" else "GPKG")
