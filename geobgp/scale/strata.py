"""map_strata: a map for each value of a column, with a common prior."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp import archive
from geobgp.auto.gridded import GriddedData, InTime
from geobgp.auto.pipeline import Mapped, run
from geobgp.data.inputs import Inputs
from geobgp.data.persons import CaseControl
from geobgp.errors import DataError, GeobgpWarning, StrataWarning, captured_warnings, render_text, warn
from geobgp.files import replacing, write_csv
from geobgp.land.regions import read_regions
from geobgp.output.grids import hatched_cells, hatched_land
from geobgp.output.palette import Classes, ratio_classes, round_classes
from geobgp.parallel import Failed, Workers, open_workers
from geobgp.posterior import Posterior
from geobgp.prior.kernels import Kernel, NormalPrior, Prior
from geobgp.privacy import Protection, hide_rows, legend, protected
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.text import count, listed, number
from geobgp.web.maps import hatched_picture
from geobgp.web.page import data_url, palette_png, render, sealed

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.auto.tasks import MapTask, StrataData
    from geobgp.inference.fit import Fit
    from geobgp.prior.basis import Basis


# -- Packing: posteriors without what they share, light enough to be sent between processes ------------------


def common_parts(basis: Basis, inputs: Inputs | Posterior) -> dict[str, Any]:
    """Return what all strata have in common by name: it is not sent with each of them."""
    inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(inputs)
    names = ("exposure", "effort", "effects", "given", "given_effort")
    parts = {"basis": basis} | {name: getattr(inputs, name) for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def pack(posterior: Posterior, common: Mapping[str, Any]) -> bytes:
    """Return a posterior as bytes, in which the very objects that are common stand by their names."""
    states = tuple(dataclasses.replace(state) for state in posterior.fit.states)  # type: ignore[type-var]
    light = dataclasses.replace(posterior, fit=dataclasses.replace(posterior.fit, states=states))
    names = {id(part): name for name, part in common.items()}
    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.persistent_id = lambda value: names.get(id(value))  # type: ignore[method-assign]
    pickler.dump((light, posterior.places))
    return out.getvalue()


def unpack(packed: bytes, common: Mapping[str, Any]) -> Posterior:
    """Return a posterior from what `pack` made of it, with what is common here."""
    unpickler = pickle.Unpickler(io.BytesIO(packed))
    unpickler.persistent_load = lambda name: common[name]  # type: ignore[method-assign]
    light, places = unpickler.load()
    return dataclasses.replace(light, places=places)


# -- Pooling: what many fits together teach of their hyperparameters, as a prior from which small ones borrow --
# θ_s, the log lengthscale and log sd of stratum s, is taken for a draw from N(m, diag(v)). The bound of a stratum's
# counts in θ is taken for a quadratic about the θ of its fit, with the gradient and curvature that were measured there,
# so that m and v follow by expectation and maximisation without new fits. With N(m, diag(v)) as their prior the strata
# are fitted again, and the quadratics taken anew about these fits, until m and v stay. Where strata do not differ, m is
# then the θ at which the bounds of all of them together are highest.


#: The least that strata are taken to differ by, a standard deviation of log θ.
NARROWEST = 0.03
#: How far from a fit its evidence may be thought to point, in log θ: a factor of 7.
REACH = 2.0
#: Steps of expectation and maximisation at most, and the change of the prior's mean (in sds) and log sd that ends them.
_STEPS, _SETTLED = 2000, 1e-4


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the counts of a stratum say of θ by themselves: a quadratic log-likelihood -½ θᵀAθ + bᵀθ.

    Attributes
    ----------
    precision : (2, 2) array
        A; zero in directions of which the counts say nothing.
    natural : (2,) array
        b.
    """

    precision: np.ndarray
    natural: np.ndarray

    @classmethod
    def of_fit(
        cls, theta: np.ndarray, covariance: np.ndarray, prior: Prior, gradient: np.ndarray | None = None
    ) -> Evidence:
        """Return the evidence behind a fit under a prior: its curvature and slope without those of the prior.

        Parameters
        ----------
        theta : (2,) array
            The best θ under the prior, or where the search for it ended.
        covariance : (2, 2) array
            Inverse of minus the curvature there; zero where θ is fixed.
        prior : PCPrior or NormalPrior
        gradient : (2,) array, optional
            Of the bound and the log prior there; by default zero, as it is at the best θ. Under a narrow prior a θ that
            is best but for a thousandth of a nat still has a slope that is large beside that of the counts.

        Notes
        -----
        A bound that hardly bends, or bends upwards, has its slope only near θ: the evidence is bent so that it ends
        at a distance of `REACH`.
        """
        free = np.diag(covariance) > 0
        out = cls(np.zeros((2, 2)), np.zeros(2))
        if not free.any():
            return out
        _, of_prior, bend = prior.log_density(theta)
        slope = ((0.0 if gradient is None else gradient) - of_prior)[free]
        at = np.ix_(free, free)
        values, vectors = np.linalg.eigh(np.linalg.inv(covariance[at]) + np.diag(bend[free]))
        values = np.maximum(values, np.abs(vectors.T @ slope) / REACH)
        out.precision[at] = (vectors * values) @ vectors.T
        out.natural[free] = out.precision[at] @ theta[free] + slope
        return out


def learn_prior(evidence: Sequence[Evidence], start: np.ndarray) -> NormalPrior:
    """Return the normal prior of log θ under which the evidence of all strata is most probable.

    Parameters
    ----------
    evidence : sequence of Evidence
    start : (k, 2) array
        First guesses of each stratum's θ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> theta = rng.normal([8.0, 0.0], [0.5, 0.2], (400, 2))
    >>> seen = theta + rng.normal(0.0, 0.3, theta.shape)
    >>> evidence = [Evidence(np.eye(2) / 0.09, each / 0.09) for each in seen]
    >>> prior = learn_prior(evidence, seen)
    >>> [round(v, 1) for v in (*prior.log_lengthscale, *prior.log_sd)]
    [8.0, 0.5, -0.0, 0.2]
    """
    a = np.array([one.precision for one in evidence])
    b = np.array([one.natural for one in evidence])
    mean = np.median(start, axis=0)
    variance = np.maximum(start.var(axis=0), 0.1)
    for _ in range(_STEPS):
        covariance = np.linalg.inv(a + np.diag(1.0 / variance))
        each = np.einsum("sij,sj->si", covariance, b + mean / variance)
        old_mean, old_variance = mean, variance
        mean = each.mean(axis=0)
        spread = np.einsum("sii->si", covariance) + (each - mean) ** 2
        variance = np.maximum(spread.mean(axis=0), NARROWEST**2)
        change = np.abs(mean - old_mean) / np.sqrt(variance) + np.abs(np.log(variance / old_variance))
        if change.max() < _SETTLED:
            break
    sd = np.sqrt(variance)
    return NormalPrior((float(mean[0]), float(sd[0])), (float(mean[1]), float(sd[1])))


def moved(before: NormalPrior | None, after: NormalPrior) -> float:
    """Return how far a prior has moved: the change of means in sds, or of log sds, whichever is most."""
    if before is None:
        return float("inf")
    pairs = zip((before.log_lengthscale, before.log_sd), (after.log_lengthscale, after.log_sd), strict=True)
    return max(max(abs(m1 - m0) / s1, abs(np.log(s1 / s0))) for (m0, s0), (m1, s1) in pairs)


def most_probable(evidence: Sequence[Evidence], prior: Prior, start: np.ndarray) -> np.ndarray:
    """Return the one θ that the evidence of several fits and a prior together find most probable.

    Examples
    --------
    >>> evidence = [Evidence(np.eye(2), np.array([2.0, 0.0])), Evidence(np.eye(2), np.array([4.0, 1.0]))]
    >>> most_probable(evidence, NormalPrior((0.0, 1e3), (0.0, 1e3)), np.zeros(2)).round(3).tolist()
    [3.0, 0.5]
    """
    a = np.sum([one.precision for one in evidence], axis=0)
    b = np.sum([one.natural for one in evidence], axis=0)
    theta = np.array(start, float)
    for _ in range(50):
        _, slope, bend = prior.log_density(theta)
        step = np.linalg.solve(a - np.diag(np.minimum(bend, -1e-6)), b - a @ theta + slope)
        theta = theta + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-8:
            break
    return theta


# -- The maps of strata: a mapping of names to posteriors, and what they answer together ----------------------


def _asked(name: str) -> Callable[..., Any]:
    """Return the method of `Posterior` of this name, asked of every stratum."""
    method = getattr(Posterior, name)

    @wraps(method)
    def ask(self: Strata, *args: Any, **how: Any) -> Any:
        return self.together({key: getattr(posterior, name)(*args, **how) for key, posterior in self.items()})

    ask.__doc__ = (
        f"Return `Posterior.{name}` of every stratum, which has all arguments.\n\n        Tables are one under another "
        "with a column ``stratum`` (and the columns that made it), datasets stacked along a\n        dimension "
        "``stratum``, maps another `Strata`, and all else is a dict by name.\n        "
    )
    return ask


@dataclass(frozen=True, eq=False)
class Strata(Mapping[str, "Posterior"]):
    """The result of `map_strata`: a mapping of the strata's names to their posteriors, which share one basis.

    What one posterior can be asked, all can: `values_at`, `exceedance`, `dataset`, `totals`, `ranks`, `in_units` and
    the others answer for every stratum, in one table, dataset or `Strata`.

    Attributes
    ----------
    by : tuple of str
        The columns whose values made them.
    categories : dict of str to tuple
        These values, by name; of strata that could not be mapped too.
    pooled : Posterior
        The fit of all data together, which chose cells, water and basis.
    failures : dict of str to str
        Why strata could not be mapped, by name.
    warnings : dict of str to tuple of str
        What each fit warned of, by name.
    prior : NormalPrior or None
        The prior that pooled strata share.
    counts : dict of str to Counts, AreaCounts or CaseControl
        What was observed, by name; files do not hold it.
    facts : dict of str to dict
        Of strata that could not be mapped: how many points are used, and dropped.
    """

    _posteriors: dict[str, Posterior] = field(repr=False)
    by: tuple[str, ...]
    categories: dict[str, tuple[Any, ...]] = field(repr=False)
    pooled: Posterior
    failures: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    prior: NormalPrior | None = None
    counts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    facts: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Posterior:
        return self._posteriors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)

    def __repr__(self) -> str:
        failed = f", {len(self.failures):,} failed ({listed(self.failures, 3)})" if self.failures else ""
        when = "" if self.pooled.periods is None else f" in {self.pooled.periods.words()}"
        return (
            f"Strata({count(len(self), 'map')} by {listed(self.by)}{when}, {self.pooled.domain.n_nodes:,} "
            f"nodes, {self.pooled.basis.label}{', pooled' if self.prior is not None else ''}{failed})"
        )

    @property
    def labels(self) -> pd.DataFrame:
        """The values of the columns, by name of the stratum."""
        return pd.DataFrame(list(self.categories.values()), index=list(self.categories), columns=list(self.by))

    # -- what all posteriors answer

    values_at = _asked("values_at")
    intensity_at = _asked("values_at")
    intensity = _asked("intensity")
    exceedance = _asked("exceedance")
    latent = _asked("latent")
    dataset = _asked("dataset")
    node_intensity = _asked("node_intensity")
    cells = _asked("cells")
    sample = _asked("sample")
    predict = _asked("predict")
    level = _asked("level")
    trend = _asked("trend")
    ranks = _asked("ranks")
    excursion = _asked("excursion")
    hotspots = _asked("hotspots")
    people_above = _asked("people_above")
    tolerance_contours = _asked("tolerance_contours")
    residuals = _asked("residuals")
    cross_validate = _asked("cross_validate")
    variation = _asked("variation")
    at = _asked("at")
    forecast = _asked("forecast")
    in_units = _asked("in_units")
    styled = _asked("styled")
    with_interval = _asked("with_interval")
    protected = _asked("protected")

    @property
    def coefficients(self) -> pd.DataFrame:
        """Fixed effects of every stratum in the covariates' own units; see `Posterior.coefficients`."""
        table: pd.DataFrame = self.together({name: each.coefficients for name, each in self.items()})
        return table

    def together(self, answers: Mapping[str, Any]) -> Any:
        """Return the answers of all strata as one.

        Parameters
        ----------
        answers : mapping
            By name: tables, datasets, arrays, posteriors, or anything else, which stays by name.
        """
        import xarray as xr

        first = next(iter(answers.values()))
        if isinstance(first, Posterior):
            pooled = self.pooled
            if first.periods is None and pooled.periods is not None:  # one of the periods
                pooled = replace(first, title=pooled.title)
            return replace(self, _posteriors=dict(answers), pooled=pooled)
        if isinstance(first, pd.DataFrame):
            tables = [self._labelled(table, name) for name, table in answers.items()]
            # Without the empty ones, whose columns have no kind.
            tables = [table for table in tables if len(table)] or tables[:1]
            table = pd.concat(tables, ignore_index=isinstance(first.index, pd.RangeIndex))
            table.attrs |= first.attrs
            return table
        if isinstance(first, xr.Dataset | xr.DataArray):
            return _stacked(dict(answers), self.by)
        return dict(answers)

    def _labelled(self, table: Any, name: str) -> Any:
        """Return a table with the name of a stratum, and the values that made it, before its columns."""
        table = table.copy()
        values = {"stratum": name, **dict(zip(self.by, self.categories[name], strict=True))}
        for place, (column, value) in enumerate(values.items()):
            table.insert(place, column if column not in table else f"stratum_{column}", value)
        return table

    def table(self) -> pd.DataFrame:
        """Return a row for each stratum: its labels, points, hyperparameters, bound, and what is to be said of it."""
        scale, unit = self.pooled.domain.length_unit
        rows = {}
        for name, posterior in self.items():
            rows[name] = {
                **dict(zip(self.by, self.categories[name], strict=True)),
                "points": posterior.n_points,
                "dropped": round(posterior.points.get("dropped", 0)),
                f"lengthscale_{unit}": posterior.lengthscale / scale,
                "sd": posterior.sd,
                "elbo": posterior.elbo,
                "converged": posterior.converged,
                "remarks": " ".join(self.warnings.get(name, ())),
            }
        for name, reason in self.failures.items():
            labels = dict(zip(self.by, self.categories[name], strict=True))
            rows[name] = labels | {"points": 0, "dropped": 0} | self.facts.get(name, {}) | {"remarks": reason}
        order = [name for name in self.categories if name in rows]
        table = pd.DataFrame([rows[name] for name in order], index=pd.Index(order, name="stratum"))
        named = hide_rows(table.rename(columns={"points": "observed"}), self.pooled, ["observed"])
        return named.rename(columns={"observed": "points"})

    def totals(
        self,
        regions: Any = None,
        *,
        client: Any = None,
        n_jobs: int | None = 1,
        step: Callable[[int, int], Any] | None = None,
        **how: Any,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events of each stratum in regions, with intervals.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            As for `Posterior.totals`; by default the whole land.
        client, n_jobs
            Who does it, as for `map_strata`; this process by default.
        step : callable(done, all), optional
            Told of the progress.
        **how
            As for `Posterior.totals`.

        Returns
        -------
        GeoDataFrame
            A row for each stratum and region: ``stratum``, the columns that made it, and those of `Posterior.totals`.
        """
        if how.get("points") is not None:
            raise DataError(
                "Points do not say of which stratum they are.",
                option="points",
                remedy="Ask one stratum at a time: strata[name].totals(regions, points=...).",
            )
        frame = read_regions(regions, self.pooled.domain, by=how.pop("by", None))
        names = list(self)
        with open_workers(client, n_jobs) as workers:
            shared = workers.share(replace(self.pooled, tried=())), workers.share((frame, how))
            common = common_parts(self.pooled.basis, self.pooled)
            items = [pack(self[name], common) for name in names]
            tables = workers.gather(_totals, items, *shared, step=step)
        totals: gpd.GeoDataFrame = self.together(dict(zip(names, tables, strict=True)))
        return totals.reset_index(drop=True)

    # -- files

    def to_totals(self, path: str | Path, regions: Any = None, **how: Any) -> Path:
        """Write `totals` to a GeoPackage (``.gpkg``) or, without geometries, to a CSV file."""
        return self.write_totals(self.totals(regions, **how), path)

    @staticmethod
    def write_totals(table: gpd.GeoDataFrame, path: str | Path) -> Path:
        """Write a table of totals, as `to_totals` does."""
        path = Path(path)
        if path.suffix.lower() not in (".gpkg", ".csv"):
            raise DataError(
                f"Totals are written as .gpkg or .csv; found {path.name!r}.", option="path", found=str(path)
            )
        if path.suffix.lower() == ".csv":
            write_csv(path, table)
            return path
        with replacing(path) as temporary:
            table.to_file(temporary, layer="totals", driver="GPKG")
        return path

    def file_names(self) -> dict[str, str]:
        """Return a name for the files of each stratum that is safe everywhere, and no other's."""
        return safe_names(list(self))

    def to_raster(
        self, folder: str | Path, thresholds: Sequence[float] = (), step: Callable[[int, int], Any] | None = None
    ) -> dict[str, Path]:
        """Write a GeoTIFF of each stratum into a folder, all statistics as its bands; return where, by name.

        Each of `thresholds` adds the probability of exceeding it. Over periods each stratum has a folder with a file
        for each period.
        """
        written: dict[str, Path] = {}
        for name, path in self.raster_paths(folder).items():
            self[name].to_raster(path, thresholds)
            written[name] = path
            if step is not None:
                step(len(written), len(self))
        return written

    def raster_paths(self, folder: str | Path) -> dict[str, Path]:
        """Return where the GeoTIFF of each stratum (over periods the folder) is written, by name."""
        end = ".tif" if self.pooled.periods is None else ""
        return {name: Path(folder) / f"map-{stem}{end}" for name, stem in self.file_names().items()}

    def to_netcdf(self, path: str | Path, thresholds: Sequence[float] = (), **how: Any) -> Path:
        """Write `dataset` to one netCDF file by CF conventions, with a dimension for the strata."""
        from geobgp.output.netcdf import write_netcdf

        return write_netcdf(self.dataset(thresholds=thresholds, **how), path)

    def to_zarr(self, path: str | Path, thresholds: Sequence[float] = (), **how: Any) -> Path:
        """Write `dataset` to a Zarr store by CF conventions, with a chunk for each stratum. Needs the package zarr."""
        from geobgp.output.netcdf import write_zarr

        return write_zarr(self.dataset(thresholds=thresholds, **how), path)

    def to_qgis(
        self, path: str | Path, thresholds: Sequence[float] = (), *, regions: Any = None, hotspots: Any = None
    ) -> Path:
        """Write a QGIS project with a group of layers for each stratum, all in the same classes.

        Parameters
        ----------
        path : str or path
            A folder, made if it is missing, for ``map.qgz`` and a folder of each stratum; or the project itself.
        thresholds : sequence of float
            Each adds the probability of exceeding it, and where that is probable, as polygons.
        regions : optional
            As for `Posterior.totals`; their totals are in ``regions.gpkg`` of each stratum.
        hotspots : bool or GeoDataFrame, optional
            From `hotspots`; True: those above each of the thresholds. They are in ``hotspots.gpkg`` of each stratum.
        """
        from geobgp.checks.hotspots import read_hotspots
        from geobgp.output.qgis import HOTSPOTS, LayerGroup, posterior_group, write_layers, write_project

        project = Path(path) if Path(path).suffix.lower() == ".qgz" else Path(path) / "map.qgz"
        root, shown = project.absolute().parent, self.alike()
        groups: list[LayerGroup] = []
        for name, stem in self.file_names().items():
            posterior, folder = shown[name], root / f"map-{stem}"
            rasters = posterior.to_raster(folder, thresholds)
            totals = None if regions is None else posterior.totals(regions, thresholds=thresholds)
            tables = {"regions": totals, "hotspots": read_hotspots(posterior, _of_stratum(hotspots, name), thresholds)}
            for (key, table), file in zip(tables.items(), ("regions.gpkg", HOTSPOTS), strict=True):
                if table is not None:
                    write_layers(folder / file, {key: table})
            group = posterior_group(posterior, folder, rasters, thresholds=thresholds, **tables, root=root, name=name)
            groups.append(replace(group, visible=not groups, expanded=not groups))
        whole, domain = LayerGroup(self.title, groups), self.pooled.domain
        return write_project(project, whole, crs=domain.crs, bounds=domain.grid.bounds)

    @property
    def title(self) -> str:
        """What the maps are called together."""
        given = self.pooled.title
        return given or f"{self.pooled.default_title} by {', '.join(self.by)}"

    def alike(self) -> Strata:
        """Return the strata in the same classes and colours: of all of them together, unless others were asked for."""
        first = next(iter(self.values()))
        style = first.style
        if style.classes is not None or style.vmin is not None or style.vmax is not None:
            return self
        if not first.is_summed or first.quantity == "relative risk":
            together = None
        else:
            together = list(round_classes(np.concatenate(self._drawn()), units=first.units).breaks)
        styled: Strata = self if not together else self.styled(together, cmap=style.cmap)
        return styled

    def _drawn(self) -> list[np.ndarray]:
        """Return what maps show of each stratum, at the nodes."""
        name = "q50" if next(iter(self.values())).drawn == "median" else "mean"
        return [posterior.node_intensity((0.5,))[name].to_numpy() for posterior in self.values()]

    def to_map(self, path: str | Path | None = None, **how: Any) -> str:
        """Return a page with the interactive map of one stratum at a time, and a switch; write it to `path` if given.

        Parameters
        ----------
        path : str or path, optional
            An HTML file that needs nothing else.
        **how
            As for `Posterior.to_map`.
        """
        most = how.pop("max_bytes", None) or max(PAGE_BYTES // len(self), LEAST_BYTES)
        pages = {}
        for name, posterior in self.alike().items():
            asked: dict[str, Any] = {"title": name, "max_bytes": most} | how
            asked["hotspots"] = _of_stratum(how.get("hotspots"), name)
            pages[name] = posterior.to_map(**asked).get_root().render()
        return self._switch(path, pages, maps=True, online=how.get("basemap") is not None)

    def to_report(self, path: str | Path, **how: Any) -> Path:
        """Write the reports of all strata on one page, with a switch.

        Parameters
        ----------
        path : str or path
            An HTML file that needs nothing else.
        **how
            As for `Posterior.to_report`.
        """
        pages = {}
        with TemporaryDirectory(prefix="geobgp-") as folder:
            for name, posterior in self.alike().items():
                file = Path(folder) / "report.html"
                posterior.to_report(file, **how | {"hotspots": _of_stratum(how.get("hotspots"), name)})
                pages[name] = file.read_text("utf-8")
        self._switch(path, pages)
        return Path(path)

    def _switch(
        self, path: str | Path | None, pages: Mapping[str, str], *, maps: bool = False, online: bool = False
    ) -> str:
        words = {"title": self.title, "by": ", ".join(self.by), "pages": dict(pages)}
        page = render("scale/switch.html.j2", **words, maps=maps, online=online)
        page = sealed(page, *pages.values())
        if path is not None:
            with replacing(path, parents=True) as temporary:
                temporary.write_text(page, encoding="utf-8")
        return page

    def to_index(self, path: str | Path, *, title: str = "") -> Path:
        """Write a page of small maps of all strata under one legend; it opens in any browser, without network."""
        return write_page(self, path, title=title)

    def save(self, path: str | Path) -> Path:
        """Write all strata to one file, which holds what they share once; `load` reads it."""
        plain = (str, int, float, bool, np.generic)
        content = {
            "by": list(self.by),
            "categories": [
                [name, [value if isinstance(value, plain) else str(value) for value in key]]
                for name, key in self.categories.items()
            ],
            "posteriors": [[name, archive.record(posterior)] for name, posterior in self.items()],
            "pooled": archive.record(self.pooled),
            "failures": list(map(list, self.failures.items())),
            "warnings": [[name, list(texts)] for name, texts in self.warnings.items()],
            "facts": [] if self.pooled.protection else [[name, dict(f)] for name, f in self.facts.items()],
            "prior": self.prior,
        }
        return archive.write(path, KIND, content, self.pooled.provenance["source"])

    @classmethod
    def load(cls, path: str | Path) -> Strata:
        """Read strata that `save` wrote; a damaged or foreign file raises CacheError."""

        def strata(content: dict[str, Any]) -> Strata:
            return cls(
                {name: archive.restored(record) for name, record in content["posteriors"]},
                tuple(content["by"]),
                {name: tuple(key) for name, key in content["categories"]},
                archive.restored(content["pooled"]),
                dict(content["failures"]),
                {name: tuple(texts) for name, texts in content["warnings"]},
                content["prior"],
                facts=dict(content["facts"]),
            )

        return archive.read(path, KIND, strata)


#: What saved strata are called; bytes of a page with all their maps, and of each of them at least.
KIND, PAGE_BYTES, LEAST_BYTES = "strata", 24_000_000, 1_000_000


def _of_stratum(table: Any, name: str) -> Any:
    """Return the rows of a stratum, of a table of all; anything else as it is."""
    if "stratum" not in getattr(table, "columns", ()):
        return table
    own = table[table["stratum"] == name].drop(columns="stratum").reset_index(drop=True)
    own.attrs |= table.attrs
    return own


def _stacked(answers: dict[str, Any], by: Sequence[str]) -> Any:
    """Return datasets (or arrays) of all strata along a dimension; what is the same land in all has none."""
    import xarray as xr

    first = next(iter(answers.values()))
    how: dict[str, Any] = {"coords": "minimal", "compat": "override", "join": "override"}
    if isinstance(first, xr.Dataset):
        how["data_vars"] = [name for name in first.data_vars if name != "coverage"]
    axis = xr.DataArray(np.array(list(answers)), dims="stratum", name="stratum")
    out = xr.concat(list(answers.values()), dim=axis, combine_attrs="drop_conflicts", **how)
    out["stratum"].attrs["long_name"] = ", ".join(by)
    if "coverage" in getattr(out, "data_vars", ()):
        out["coverage"] = first["coverage"]
    if isinstance(out, xr.DataArray):
        return out.rename(first.name)
    out.attrs["title"] = f"By {', '.join(by)}"
    return out


def _totals(item: bytes, pooled: Posterior, asked: tuple[Any, dict[str, Any]]) -> gpd.GeoDataFrame:
    """Return the totals of one stratum, wherever this is."""
    frame, how = asked
    return unpack(item, common_parts(pooled.basis, pooled)).totals(frame, **how)


def safe_names(names: list[str]) -> dict[str, str]:
    """Return file names without an ending, of letters, digits and dashes, all different in any case.

    Examples
    --------
    >>> safe_names(["Lyme disease", "../etc", "lyme/disease", "ÄÖ", ""])
    {'Lyme disease': 'lyme-disease', '../etc': 'etc', 'lyme/disease': 'lyme-disease-2', 'ÄÖ': 'ao', '': 'stratum'}
    """
    stems: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "stratum"
        numbered = chain([stem], (f"{stem}-{k}" for k in count_from(2)))
        stems[name] = next(one for one in numbered if one not in stems.values())
    return stems


# -- Fits of strata, all on one basis, by a Dask cluster or the processes of this machine ---------------------


#: Strata from which a common prior can be learned; how often it is learned anew; and how far it may move at the end, in
#: its own standard deviations.
FEWEST_POOLED, POOL_ROUNDS, POOL_SETTLED = 3, 4, 0.1
#: The share of the time allowed that strata over periods have at least, whatever the pooled fit has taken.
LEAST_SHARE = 0.3


def run_strata(options: Any, progress: ProgressLike = False) -> Strata:
    """Do what `map_strata` does; options are those of one of `geobgp.auto.options.STRATA`."""
    o, progress = options, as_progress(progress)
    o.check_files()
    begin = perf_counter()
    _check_readable(getattr(o, o.data))
    with open_workers(o.client, o.n_jobs) as workers:
        mapped = run(o.pooled(), progress, by=o.by, n_workers=workers.n)
        strata = mapped.task.read_strata(mapped.domain, mapped.reach, mapped.data)
        left = max(begin + o.max_seconds - perf_counter(), LEAST_SHARE * o.max_seconds)
        seconds = left / max(mapped.task.fits_to_come, 1)
        return _fit_all(o, mapped, strata, workers, progress, seconds)


def _check_readable(points: Any) -> None:
    """Refuse points that can be read only once: they are read for the pooled fit, and by stratum."""
    if points is None or hasattr(points, "columns") or hasattr(points, "__fspath__") or isinstance(points, str):
        return
    if any(hasattr(points, name) for name in ("__arrow_c_stream__", "__geo_interface__", "__dataframe__")):
        return
    raise DataError(
        f"Strata need a table or a file, with columns; found points as {type(points).__name__}.",
        option="points",
        found=type(points).__name__,
        remedy="Give a GeoDataFrame, a DataFrame, a path or a Dask collection.",
    )


@dataclass(frozen=True, eq=False)
class Item:
    """A stratum to be fitted.

    Attributes
    ----------
    counts : Counts, AreaCounts or CaseControl
        What was observed, of all periods as one.
    by_period : Counts or AreaCounts, optional
    title : str
    prior : NormalPrior or None
        In place of the kernel's own.
    start : bytes or None
        A posterior of it to begin from, packed.
    """

    counts: Any
    by_period: Any
    title: str
    prior: NormalPrior | None = None
    start: bytes | None = None


@dataclass(frozen=True, eq=False)
class StratumJob:
    """What all strata share: the kind of data, the prior, the inputs, and how they are fitted."""

    task: MapTask
    basis: Basis
    kernel: Kernel
    inputs: Inputs
    in_time: Inputs | None
    hyper: Any
    measure: bool
    near: np.ndarray
    seconds: float

    @property
    def common(self) -> dict[str, Any]:
        """What all strata have in common by name."""
        return common_parts(self.basis, self.inputs if self.in_time is None else self.in_time)


@dataclass(frozen=True, eq=False)
class FittedStratum:
    """A stratum's posterior, packed, what its fit learned of the hyperparameters, and what it warned of."""

    packed: bytes
    learned: Fit
    warnings: tuple[str, ...]


def fit_stratum(item: Item, job: StratumJob) -> FittedStratum:
    """Fit one stratum, wherever this is."""
    kernel, captured, common = job.kernel, list[GeobgpWarning](), job.common
    if item.prior is not None:
        kernel = dataclasses.replace(kernel, prior=item.prior)  # type: ignore[type-var]
    start = None
    if item.start is not None:
        start = dataclasses.replace(unpack(item.start, common), kernel=kernel)
    task = job.task.titled(item.title)
    with captured_warnings(captured.append):
        if job.in_time is not None:
            in_time = InTime(item.by_period, job.in_time)
            deadline = perf_counter() + job.seconds
            posterior = task.fit_periods(in_time, job.basis, kernel, False, start, job.near, deadline)
        else:
            data = GriddedData(job.basis.domain, item.counts, job.inputs, 0.0, 0.0)
            posterior = task.fit(data, job.basis, kernel, job.hyper, False, start, job.measure)
    learned = dataclasses.replace(posterior.fit, states=())
    return FittedStratum(pack(posterior, common), learned, tuple(str(warning) for warning in captured))


def _fit_all(
    o: Any, mapped: Mapped, strata: StrataData, workers: Workers, progress: Progress, seconds: float
) -> Strata:
    pooled, in_time = mapped.posterior, mapped.data.in_time
    if o.pool and len(strata.keys) < FEWEST_POOLED:
        raise DataError(
            f"A prior is learned from {FEWEST_POOLED} strata at least; there are {len(strata.keys)}.",
            option="pool",
            found=len(strata.keys),
            remedy="Leave it out.",
        )
    task = mapped.task.light()
    if in_time is not None:
        task.options._set("dynamics", pooled.dynamics)
    job = StratumJob(
        task, pooled.basis, pooled.kernel, mapped.data.inputs, None if in_time is None else in_time.inputs,
        o.hyper, o.pool, pooled.fit.hyper_mean[:2], seconds,
    )  # fmt: skip
    shared, common = workers.share(job), job.common
    prior: NormalPrior | None = None
    items = {
        name: Item(_light(data.counts), None if data.in_time is None else _light(data.in_time.counts), name)
        for name, data in strata.data.items()
    }
    fits, failures = _run(items, shared, workers, progress, "fits")
    failures = strata.failures | failures
    rounds = POOL_ROUNDS if o.pool and len(fits) >= FEWEST_POOLED else 0
    if any(f.learned.hyper_gradient is None for f in fits.values()):
        # Counts with more spread than Poisson ones: without gradients only a wide prior, the first, can be taken out.
        rounds = min(rounds, 1)
    for _ in range(rounds):
        before, prior = prior, _common_prior(pooled, fits, prior)
        if moved(before, prior) < POOL_SETTLED:
            prior = before
            break
        items = {name: dataclasses.replace(items[name], prior=prior, start=f.packed) for name, f in fits.items()}
        again, failed = _run(items, shared, workers, progress, "pooled fits")
        fits, failures = fits | again, failures | failed
    fits = {name: fits[name] for name in strata.keys if name in fits and name not in failures}
    failures = {name: failures[name] for name in strata.keys if name in failures}
    if not fits:
        name, error = next(iter(failures.items()))
        raise DataError(
            f"None of {len(strata.keys):,} strata could be mapped; the first, {name!r}: {render_text(error)}",
            option="by",
            found=0,
        )
    units = getattr(o, "units", None)
    posteriors = {name: _posterior(f.packed, pooled, common, prior).in_units(units) for name, f in fits.items()}
    rule = Protection.of(o.min_count, o.protect, getattr(o, "min_people", 0.0))
    if rule:
        posteriors, too_few = _protected(posteriors, rule)
        failures |= too_few
        pooled = protected(pooled, dataclasses.replace(rule, protect="hide"))
    if failures:
        why = "; ".join(f"{name}: {render_text(text)}" for name, text in list(failures.items())[:5])
        more = f"; and {len(failures) - 5:,} more" if len(failures) > 5 else ""
        warn(
            StrataWarning(
                f"{count(len(failures), 'stratum', 'strata')} of {len(strata.keys):,} could not be mapped "
                f"({why}{more}).",
                option="by",
                found=list(failures),
                remedy="The others are as they would be without.",
            )
        )
    captured = {name: (*strata.warnings.get(name, ()), *f.warnings) for name, f in fits.items()}
    observed = strata.observed
    facts = {name: _lost(observed[name]) for name in failures if name in observed}
    return Strata(posteriors, strata.by, dict(strata.keys), pooled, failures, captured, prior, dict(observed), facts)


def _light(counts: Any) -> Any:
    """Return what was observed without where persons live, which no fit needs."""
    if not isinstance(counts, CaseControl):
        return counts
    cases, controls = (dataclasses.replace(p, told=None) for p in (counts.cases, counts.controls))
    return dataclasses.replace(counts, cases=cases, controls=controls)


def _lost(counts: Any) -> dict[str, float]:
    """Return how many points are used, and dropped."""
    return {"points": getattr(counts, "n_used", 0), "dropped": getattr(counts, "n_dropped", 0)}


def _protected(posteriors: dict[str, Posterior], rule: Protection) -> tuple[dict[str, Posterior], dict[str, str]]:
    """Return the strata with small numbers hidden, and why nothing of the others can be shown."""
    shown, failures = dict[str, Posterior](), dict[str, str]()
    for name, posterior in posteriors.items():
        try:
            shown[name] = protected(posterior, rule)
        except DataError as error:
            failures[name] = error.message
    if not shown:
        name, text = next(iter(failures.items()))
        raise DataError(f"No stratum can be shown; the first, {name!r}: {text}", option="min_count")
    return shown, failures


def _run(
    items: dict[str, Item], shared: Any, workers: Workers, progress: Progress, stage_name: str
) -> tuple[dict[str, FittedStratum], dict[str, str]]:
    """Return the fits by name, and why those failed that did."""
    names, fits, failures = list(items), dict[str, FittedStratum](), dict[str, str]()
    with progress.stage(stage_name) as stage:
        stage.tell(f"by {workers.where}")
        for done, (k, result) in enumerate(workers.run(fit_stratum, list(items.values()), shared), start=1):
            if isinstance(result, Failed):
                error = result.error
                failures[names[k]] = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            else:
                fits[names[k]] = result
            stage.step(done, len(names))
        lost = f", {len(failures):,} failed ({listed(failures, 3)})" if failures else ""
        stage.note(f"{count(len(fits), 'stratum', 'strata')} by {workers.where}{lost}")
    return fits, failures


def _common_prior(pooled: Posterior, fits: dict[str, FittedStratum], before: NormalPrior | None) -> NormalPrior:
    domain, kernel = pooled.domain, pooled.kernel
    size = float(np.sqrt(domain.node_areas.sum()))
    prior = before or kernel.prior.scaled(size, domain.cell_size)
    learned = [f.learned for f in fits.values()]
    evidence = [
        Evidence.of_fit(
            f.hyper_mean[:2], f.hyper_cov[:2, :2], prior, None if f.hyper_gradient is None else f.hyper_gradient[:2]
        )
        for f in learned
    ]
    return learn_prior(evidence, np.array([f.hyper_mean[:2] for f in learned]))


def _posterior(packed: bytes, pooled: Posterior, common: Mapping[str, Any], prior: NormalPrior | None) -> Posterior:
    """Return the posterior of a stratum, on the basis that all share."""
    shared = "free for each stratum"
    if prior is not None:
        shared = "partly pooled: a normal prior of log lengthscale and log sd, learned from all strata"
    return dataclasses.replace(
        unpack(packed, common),
        choices={**pooled.choices, "hyperparameters": shared},
        interval=pooled.interval,
        style=pooled.style,
    )


# -- The page of strata: small maps side by side under one legend, with their numbers ------------------------


#: Pixels of a small map along its longer side, at most.
SIDE = 320


def write_page(strata: Strata, path: str | Path, *, title: str = "") -> Path:
    """Write the page; see `Strata.to_index`."""
    domain, periods = strata.pooled.domain, strata.pooled.periods
    shown = strata if periods is None else strata.at(-1)
    first = next(iter(shown.values()))
    fields = dict(zip(shown, shown._drawn(), strict=True))
    together = np.concatenate(list(fields.values()))
    risk = first.quantity == "relative risk"
    classes = ratio_classes(first.units) if risk else round_classes(together, units=first.units)
    empty, hatched = hatched_land(first)
    cells = hatched_cells(domain, empty) if hatched else None
    scale, unit = domain.length_unit
    maps = []
    for name, posterior in shown.items():
        maps.append({
            "name": name,
            "picture": picture(domain.to_grid(fields[name]), classes, cells),
            "points": f"{count(posterior.n_points, 'point')}",
            "about": " ".join(filter(None, (
                f"lengthscale {number(posterior.lengthscale / scale)} {unit}, sd {number(posterior.sd)}",
                f"({legend(posterior)})" if posterior.protection else "",
            ))),
            "remarks": [
                *(() if posterior.converged else ("not converged",)), *_doubt(posterior),
                *strata.warnings.get(name, ()),
            ],
        })  # fmt: skip
    by, nodes = ", ".join(strata.by), count(domain.n_nodes, "node")
    when = "" if periods is None else f", {periods.labels[-1]}, the last of {periods.words()}"
    page = render(
        "scale/strata.html.j2",
        title=title or f"Strata by {by}",
        about=f"{count(len(strata), 'map')} by {by}, on {nodes} with {strata.pooled.basis.label}{when}",
        pooled=_in_common(strata),
        quantity=first.quantity,
        drawn=first.drawn,
        hatched=hatched,
        units=first.units,
        legend=list(zip(classes.hex, classes.labels(), strict=True)),
        maps=maps,
        failures=strata.failures,
        source=strata.pooled.provenance["source"],
    )
    with replacing(path, parents=True) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def _doubt(posterior: Posterior) -> tuple[str, ...]:
    """Return that a stratum's map may not vary at all."""
    variation = posterior.summary().get("variation")
    return () if variation is None or variation["verdict"] == "varies" else (variation["in_short"],)


def _in_common(strata: Strata) -> str:
    """Return what the strata share of their hyperparameters, in words."""
    if strata.prior is None:
        return "Lengthscale and sd are learned for each stratum by itself."
    scale, unit = strata.pooled.domain.length_unit
    (length, by_length), (sd, by_sd) = strata.prior.log_lengthscale, strata.prior.log_sd
    return (
        f"Lengthscale and sd are partly pooled: about {number(float(np.exp(length)) / scale)} {unit} (two thirds of "
        f"the strata within a factor of {number(float(np.exp(by_length)), 3)}) and {number(float(np.exp(sd)))} (within "
        f"a factor of {number(float(np.exp(by_sd)), 3)}), learned from all of them."
    )


def picture(values: np.ndarray, classes: Classes, hatched: np.ndarray | None = None) -> str:
    """Return values on the grid as a small picture, a data URI: the colours of their classes, clear where NaN.

    `hatched` are cells that have lines across them.

    Examples
    --------
    >>> classes = round_classes(np.arange(10.0))
    >>> picture(np.arange(12.0).reshape(3, 4), classes)[:22]
    'data:image/png;base64,'
    """
    step = max(1, -(-max(values.shape) // SIDE))
    some = np.s_[step // 2 :: step, step // 2 :: step]
    lines = None if hatched is None else hatched[some]
    return data_url(palette_png(*hatched_picture(classes.index(values[some]), classes, lines)), "image/png")
