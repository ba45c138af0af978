"""The one call: points and land in, a posterior out, with every choice made and reported."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from geobgp.auto.choices import practical_features
from geobgp.auto.domain import describe, make_domain
from geobgp.auto.options import Features, Options
from geobgp.auto.selection import ModelSearch
from geobgp.data.counts import Counts, bin_points
from geobgp.data.effects import fixed_effects
from geobgp.data.exposure import node_exposure
from geobgp.data.points import number_of_rows
from geobgp.errors import DataError, DroppedPointsWarning, GeometryError, warn
from geobgp.land.polygons import own_crs
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.summary import Choice

if TYPE_CHECKING:
    import numpy as np

    from geobgp.data.effects import Covariate
    from geobgp.data.exposure import Exposure
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


def map_intensity(
    points: Any,
    land: Any,
    *,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    covariates: Mapping[str, Covariate] | None = None,
    fill_missing: Literal["mean"] | None = None,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    weights: str | np.ndarray | None = None,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200_000,
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_seconds: float = 600.0,
    max_features: int = 1024,
    cache: bool = True,
    title: str = "",
    progress: ProgressLike = False,
) -> Posterior:
    """Map the intensity of points on land: the whole way in one call.

    What is not given is chosen, and `posterior.summary()` says what and why.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, (k, 2) array, path, or iterable of chunks
        In any CRS; see `bin_points`.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water parts; see `Domain.from_polygons`.
    exposure, exposure_column, covariates, fill_missing
        What events are counted per, and what may explain them; as for `LGCP`.
    cell_size : float, optional
        In metres. By default from the area of the land and the number of points: 2,000 to 16,000 cells.
    crs : optional
        By default a UTM zone or an equal-area projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    weights : str or array, optional
        A column or one number per point, summed in place of ones.
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show; where more than `max_features` would be needed, full resolution
        instead.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the shore; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water by quick fits, and keeps it closed unless another leads by 2 nats.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_seconds, max_features : float, int
        Bounds of what is tried when m is chosen.
    cache : bool
        Keep computed features on disk for the next time.
    title : str
        Title of maps.
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Posterior

    Examples
    --------
    >>> import numpy as np, shapely
    >>> rng = np.random.default_rng(1)
    >>> points = np.clip(rng.normal([3.0, 5.0], 2.0, (300, 2)), 0, 10)
    >>> posterior = map_intensity(points, shapely.box(0, 0, 10, 10), crs="local", cell_size=0.5)
    >>> posterior.converged, posterior.n_points
    (True, 300)
    """
    given = locals()  # every argument, and nothing else as yet
    return run(Options(**{name: given[name] for name in given if name != "progress"}), progress).posterior


@dataclass(frozen=True, eq=False)
class Mapped:
    """A posterior and what led to it.

    Attributes
    ----------
    posterior : Posterior
    counts : Counts
    choices : dict of str to Choice
        CRS, cell size, water, features, boundary, kernel, hyperparameters: what was taken and why.
    seconds : dict of str to float
        Time by stage.
    """

    posterior: Posterior
    counts: Counts
    choices: dict[str, Choice]
    seconds: dict[str, float]

    @property
    def domain(self) -> Domain:
        """The land that was fitted."""
        return self.posterior.domain


def run(options: Options, progress: ProgressLike = False, *, keep_coordinates: bool = False) -> Mapped:
    """Do what `map_intensity` does, and return the counts, the choices and the times as well.

    Parameters
    ----------
    options : Options
    progress : bool, Progress, Stage or callable
    keep_coordinates : bool
        Keep the points' coordinates with the counts, to be shown on a map.
    """
    o = options
    o.check_files()
    progress = as_progress(progress)
    with progress.stage("land") as stage:
        domain, choices = make_domain(
            o.land,
            o.water,
            o.barriers,
            o.bridges,
            cell_size=o.cell_size,
            crs=o.crs,
            land_crs=o.land_crs,
            min_coverage=o.min_coverage,
            n_points=lambda: number_of_rows(o.points, o.layer),
        )
        stage.note(describe(domain))
    with progress.stage("points") as stage:
        counts = _counts(o, domain, keep_coordinates, stage)
        stage.note(_about_counts(counts))
    with progress.stage("inputs") if o.exposure is not None or o.covariates else nullcontext():
        exposure, exposure_kind = node_exposure(o.exposure, domain, o.exposure_column)
        effects = fixed_effects(o.covariates, domain, o.fill_missing)
    search = ModelSearch(
        domain=domain,
        counts=counts,
        kernel=o.kernel,
        exposure=exposure,
        exposure_kind=exposure_kind,
        effects=effects,
        cache=o.cache,
        title=o.title,
        progress=progress,
        deadline=time.perf_counter() + o.max_seconds,
        most=practical_features(domain.n_nodes, o.max_features),
    )
    kept = search.best(o.m, o.boundary, o.permeability)
    choices |= search.choices
    choices["hyperparameters"] = Choice("the best ones", "'integrate' would add their own uncertainty")
    if o.hyper == "integrate":
        kept = search.integrate(kept)
        mixed = f"a mixture over {len(kept.posterior.fit.states)} values"
        choices["hyperparameters"] = Choice("integrated", mixed)
    for warning in kept.warnings:
        warn(warning)
    posterior = dataclasses.replace(
        kept.posterior, choices={name: str(choice) for name, choice in choices.items()}
    )
    return Mapped(posterior, counts, choices, dict(progress.seconds))


def _counts(o: Options, domain: Domain, keep_coordinates: bool, stage: Stage) -> Counts:
    reading: dict[str, Any] = {
        name: getattr(o, name)
        for name in (
            "weights", "on_water", "max_snap", "chunksize", "longitude", "latitude", "easting", "northing",
            "layer",
        )
    } | {"crs": o.points_crs, "keep_coordinates": keep_coordinates, "progress": stage}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedPointsWarning)  # it may be taken back below
        counts = bin_points(o.points, domain, **reading)
        if counts.n_used == 0 and counts.n_read and o.points_crs is None:
            counts = _in_crs_of_land(o, domain, reading) or counts
    if counts.n_read == 0:
        rows = f" ({counts.n_missing:,} rows have none)" if counts.n_missing else ""
        raise DataError(
            f"points: there are no points to map{rows}.",
            option="points",
            remedy="Check the file, its layer and its columns.",
        )
    if counts.n_used == 0 and counts.warning is not None:
        raise GeometryError(
            f"points: none is left to map. {counts.warning.message}",
            option="points",
            remedy=counts.warning.remedy,
        )
    if counts.weighted and counts.total_weight == 0:
        raise DataError(
            f"weights: all {counts.n_used:,} are zero, so that there is nothing to map.", option="weights"
        )
    if counts.warning is not None:
        warn(counts.warning)
    return counts


def _in_crs_of_land(o: Options, domain: Domain, reading: dict[str, Any]) -> Counts | None:
    """Count once more with bare eastings and northings taken to be in the CRS of the land's own file.

    Without a CRS they are taken to be in the domain's, which may have been chosen here.
    """
    theirs = own_crs(o.land)
    again = isinstance(o.points, (str, Path)) or hasattr(o.points, "__len__")
    if not again or theirs is None or domain.crs is None or not theirs.is_projected or theirs == domain.crs:
        return None
    counts = bin_points(o.points, domain, **reading | {"crs": theirs})
    return counts if 2 * counts.n_used > counts.n_read else None


def _about_counts(counts: Counts) -> str:
    out = f"{counts.n_used:,} used"
    if counts.n_snapped:
        out += f", {counts.n_snapped:,} of them moved to the nearest land"
    if counts.n_dropped:
        out += f", {counts.n_dropped:,} dropped"
    if counts.n_missing:
        out += f", {counts.n_missing:,} rows without a point"
    return out
