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

import shapely

from geobgp.auto import choices as pick
from geobgp.auto.selection import BOUNDARIES, Features, Search, is_sparse
from geobgp.data.counts import Counts, bin_points
from geobgp.data.effects import fixed_effects, node_exposure
from geobgp.data.points import number_of_rows
from geobgp.errors import DataError, DroppedPointsWarning, GeobgpWarning, GeometryError, warn
from geobgp.files import check_exists
from geobgp.land.domain import Domain
from geobgp.land.grid import Grid
from geobgp.land.polygons import land_polygons, own_crs
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike, as_progress
from geobgp.summary import Choice
from geobgp.text import number

if TYPE_CHECKING:
    import numpy as np

    from geobgp.data.effects import Covariate, Exposure
    from geobgp.posterior import Posterior

#: Seconds after which no larger model is tried, unless told otherwise.
MAX_SECONDS = 600.0


@dataclass(frozen=True, eq=False)
class Mapped:
    """A posterior and what led to it.

    Attributes
    ----------
    posterior : Posterior
    counts : Counts
    choices : dict of str to Choice
        CRS, cell size, features, boundary, kernel, hyperparameters: what was taken and why.
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


def map_intensity(
    points: Any,
    land: Any,
    *,
    water: Any = None,
    barriers: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    m: Features = "auto",
    boundary: Literal["auto", "neumann", "dirichlet"] = "auto",
    kernel: Kernel | None = None,
    exposure: Exposure | None = None,
    covariates: Mapping[str, Covariate] | None = None,
    weights: str | np.ndarray | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    hyper: Literal["map", "integrate"] = "map",
    cache: bool = True,
    progress: ProgressLike = False,
    **options: Any,
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
    cell_size : float, optional
        In metres. By default from the area of the land and the number of points: 2,000 to 16,000 cells.
    crs : optional
        By default a UTM zone or an equal-area projection around the land; "local" for a plane.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show; where more than 1,024 would be needed, full resolution instead.
    boundary : "auto", "neumann" or "dirichlet"
        "auto" fits both and keeps the one with the higher ELBO. Under Neumann the log-intensity levels off
        at the shore; under Dirichlet it returns there to its mean.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    exposure, covariates
        As for `LGCP`.
    weights : str or array, optional
        A column or one number per point, summed in place of ones.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    cache : bool
        Keep computed features on disk for the next time.
    progress : bool
        Tell of each stage on standard error.
    **options
        ``max_snap``, ``chunksize``, ``longitude``, ``latitude``, ``easting``, ``northing``, ``layer`` and
        ``points_crs`` go to `bin_points`; ``exposure_column`` and ``fill_missing`` to `LGCP`;
        ``min_coverage`` to `Domain.from_polygons`; ``title`` is the title of maps; ``max_seconds`` (600)
        and ``max_features`` (1,024) bound what is tried when m is chosen.

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
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return run(
                points, land, water=water, barriers=barriers, cell_size=cell_size, crs=crs, m=m,
                boundary=boundary, kernel=kernel, exposure=exposure, covariates=covariates, weights=weights,
                on_water=on_water, hyper=hyper, cache=cache, progress=progress, **options,
            ).posterior  # fmt: skip
    finally:
        for w in caught:  # our own point to the caller's line
            if issubclass(w.category, GeobgpWarning):
                warnings.warn(str(w.message), w.category, stacklevel=2)
            else:
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


def run(
    points: Any,
    land: Any,
    *,
    water: Any = None,
    barriers: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    min_coverage: float = 0.02,
    weights: Any = None,
    on_water: str = "nearest",
    points_crs: Any = None,
    progress: ProgressLike = False,
    m: Features = "auto",
    boundary: str = "auto",
    kernel: Kernel | None = None,
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    covariates: Mapping[str, Covariate] | None = None,
    fill_missing: Literal["mean"] | None = None,
    hyper: str = "map",
    cache: bool = True,
    title: str = "",
    max_seconds: float = MAX_SECONDS,
    max_features: int = pick.MAX_FEATURES,
    **reading: Any,
) -> Mapped:
    """Do what `map_intensity` does, and return the counts, the choices and the times as well."""
    _check_options(m, boundary, kernel, hyper)
    unknown = set(reading) - {
        "max_snap", "chunksize", "longitude", "latitude", "easting", "northing", "layer", "keep_coordinates",
    }  # fmt: skip
    if unknown:
        raise TypeError(f"map_intensity() has no option {sorted(unknown)[0]!r}")
    for what, source in (("points", points), ("land", land), ("water", water), ("barriers", barriers)):
        if isinstance(source, (str, Path)):
            check_exists(source, what)
    progress = as_progress(progress)
    made: dict[str, Choice] = {}
    with progress.stage("land") as stage:
        domain = _domain(
            points, land, water, barriers, cell_size, crs, min_coverage, made, reading.get("layer")
        )
        stage.note(_about_domain(domain))
    with progress.stage("points") as stage:
        reading |= {"weights": weights, "on_water": on_water, "crs": points_crs}
        counts = _counts(points, domain, land, reading | {"progress": stage})
        stage.note(_about_counts(counts))
    with progress.stage("inputs") if exposure is not None or covariates else nullcontext():
        values, kind = node_exposure(exposure, domain, exposure_column)
        effects = fixed_effects(covariates, domain, fill_missing)
    search = Search(
        domain, counts, kernel, values, kind, effects, cache, title, progress,
        time.perf_counter() + max_seconds, pick.practical_features(domain.n_nodes, max_features),
    )  # fmt: skip
    posterior = search.best(m, boundary, made)
    if hyper == "integrate":
        posterior = search.integrate(posterior)
        mixed = f"a mixture over {len(posterior.fit.states)} values"
        made["hyperparameters"] = Choice("integrated", mixed)
    else:
        made["hyperparameters"] = Choice("the best ones", "'integrate' would add their own uncertainty")
    search.repeat_warnings(posterior)
    posterior = dataclasses.replace(posterior, choices={name: str(choice) for name, choice in made.items()})
    return Mapped(posterior, counts, made, dict(progress.seconds))


def _check_options(m: Any, boundary: str, kernel: Kernel | None, hyper: str) -> None:
    whole = isinstance(m, int) and not isinstance(m, bool)
    if not (m in ("auto", "full") if isinstance(m, str) else whole and m >= 1):
        raise DataError(f"m is 'auto', 'full' or a number of features of at least 1; found {m!r}.")
    if boundary not in ("auto", *BOUNDARIES):
        raise DataError(f"boundary is 'auto', 'neumann' or 'dirichlet'; found {boundary!r}.")
    if hyper not in ("map", "integrate"):
        raise DataError(f"hyper is 'map' or 'integrate'; found {hyper!r}.")
    if m == "full" and kernel is not None and not is_sparse(kernel):
        raise DataError(
            f"Full resolution needs Matern(1.0) or Matern(2.0); found {kernel.name}. Use one of these, or "
            "features."
        )


# -- land and points


def _domain(
    points: Any, land: Any, water: Any, barriers: Any, cell_size: float | None, crs: Any, min_coverage: float,
    made: dict[str, Choice], layer: str | None,
) -> Domain:  # fmt: skip
    if cell_size is not None:
        domain = Domain.from_polygons(
            land, water=water, barriers=barriers, cell_size=cell_size, crs=crs, min_coverage=min_coverage
        )
        unit = "m" if domain.crs is not None else "units"
        size = Choice(f"{number(domain.cell_size)} {unit}", "given")
    else:
        prepared = land_polygons(land, water, barriers, crs)
        area = float(shapely.area(prepared.geometry))
        if not area > 0:
            raise GeometryError("land: the polygons enclose no area, so that no cell size can be chosen.")
        cell_size, size = pick.cell_size_for(area, number_of_rows(points, layer), prepared.crs)
        bounds = shapely.bounds(prepared.geometry).tolist()
        domain = Domain.from_geometry(
            prepared.geometry,
            Grid.from_bounds((bounds[0], bounds[1], bounds[2], bounds[3]), cell_size, prepared.crs),
            barriers=prepared.barriers,
            min_coverage=min_coverage,
            notes=tuple(prepared.notes),
        )
    made["CRS"] = _about_crs(domain, crs)
    made["cell size"] = size
    return domain


def _about_crs(domain: Domain, given: Any) -> Choice:
    found = domain.crs
    if found is None:
        return Choice("local", "given: planar coordinates with no place on Earth")
    code = found.to_authority()
    name = f"{':'.join(code)}, {found.name}" if code else found.name
    if given is not None:
        return Choice(name, "given")
    if code:
        return Choice(name, "the land lies within this UTM zone")
    return Choice(name, "equal-area around the land, which does not fit one UTM zone")


def _counts(points: Any, domain: Domain, land: Any, options: dict[str, Any]) -> Counts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedPointsWarning)  # it may be taken back below
        counts = bin_points(points, domain, **options)
        if counts.n_used == 0 and counts.n_read and options["crs"] is None:
            counts = _in_crs_of_land(points, domain, land, options) or counts
    if counts.n_read == 0:
        rows = f" ({counts.n_missing:,} rows have none)" if counts.n_missing else ""
        raise DataError(
            f"points: there are no points to map{rows}. Check the file, its layer and its columns."
        )
    if counts.n_used == 0 and counts.warning is not None:
        raise GeometryError(
            f"points: none is left to map. {counts.warning.message}",
            option="points",
            remedy=counts.warning.remedy,
        )
    if counts.weighted and counts.total_weight == 0:
        raise DataError(f"weights: all {counts.n_used:,} are zero, so that there is nothing to map.")
    if counts.warning is not None:
        warn(counts.warning)
    return counts


def _in_crs_of_land(points: Any, domain: Domain, land: Any, options: dict[str, Any]) -> Counts | None:
    """Count once more with bare eastings and northings taken to be in the CRS of the land's own file.

    Without a CRS they are taken to be in the domain's, which may have been chosen here.
    """
    theirs = own_crs(land)
    again = isinstance(points, (str, Path)) or hasattr(points, "__len__")
    if not again or theirs is None or domain.crs is None or not theirs.is_projected or theirs == domain.crs:
        return None
    counts = bin_points(points, domain, **options | {"crs": theirs})
    return counts if 2 * counts.n_used > counts.n_read else None


def _about_domain(domain: Domain) -> str:
    unit, name = domain.area_unit
    area = f"{number(domain.node_areas.sum() / unit)} {name if domain.crs is not None else 'square units'}"
    parts = f", {domain.n_components:,} separate parts" if domain.n_components > 1 else ""
    size = f"{number(domain.cell_size)} {'m' if domain.crs is not None else 'units'}"
    return f"{area} in {domain.n_nodes:,} nodes of {size}{parts}"


def _about_counts(counts: Counts) -> str:
    out = f"{counts.n_used:,} used"
    if counts.n_snapped:
        out += f", {counts.n_snapped:,} of them moved to the nearest land"
    if counts.n_dropped:
        out += f", {counts.n_dropped:,} dropped"
    if counts.n_missing:
        out += f", {counts.n_missing:,} rows without a point"
    return out
