"""One tile: its domain, counts and inputs, its fit, what is written of it."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy.spatial import cKDTree

from geobgp.data.counts import bin_points
from geobgp.data.effects import (
    SLIVERS,
    Effects,
    Term,
    covariate_columns,
    covariates_of,
    fixed_effects,
    polygon_means,
    split_use,
)
from geobgp.data.inputs import node_effort, node_exposure, population_column, seen_exposure, share_column
from geobgp.data.rasters import ApartError, blocks_on_land, node_means, node_sums, open_raster, split_band
from geobgp.errors import (
    DataError,
    DomainError,
    DroppedPointsWarning,
    GeobgpWarning,
    InputWarning,
    captured_warnings,
    option,
    warn,
)
from geobgp.files import kind_of, read_vector
from geobgp.inference.engine import engine_for
from geobgp.inference.families import Poisson
from geobgp.inference.fit import run_one
from geobgp.inference.hyper import Hyper
from geobgp.land.domain import Domain
from geobgp.land.regions import dry_areas, spread_shares
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.scale.tiling import Frame, Tile
from geobgp.text import count, events, percent
from geobgp.units import RELATIVE_RISK, RISKS, Units

if TYPE_CHECKING:
    from geobgp.auto.options import TilesOptions
    from geobgp.posterior import Posterior


# -- TileInputs of a tile: exposure, effort and covariates at its nodes, read from its own window of every source --


#: The column of a tile's polygons.
VALUE = "value"
#: Polygons that come with a tile, by the key of their source.
Shapes = Mapping[str, "gpd.GeoDataFrame"]


@dataclass(frozen=True)
class Source:
    """One thing that tiles read.

    Attributes
    ----------
    option : "exposure", "effort" or "covariates"
    name : str
        What it is called.
    path : str or None
        Of a raster, of which each tile reads its window; None for polygons, which come with the tile.
    levels : tuple of str
        The levels of a covariate that have effects; none for numbers.
    usual : tuple of float
        Its mean over all land, or the share of each level, for land without any value near.
    """

    option: Literal["exposure", "effort", "covariates"]
    name: str
    path: str | None
    levels: tuple[str, ...] = ()
    usual: tuple[float, ...] = (0.0,)

    @property
    def key(self) -> str:
        """A name that no other source has."""
        return self.option if self.option != "covariates" else f"covariate {self.name}"

    @property
    def words(self) -> str:
        """What it is, as the subject of a sentence."""
        return f"The {self.option}" if self.option != "covariates" else f"The covariate {self.name!r}"

    def at_nodes(self, domain: Domain, shapes: Shapes) -> np.ndarray:
        """Return its values (n_nodes, k) at the nodes; NaN where it has none, or does not reach at all."""
        if self.path is None:
            return self._of_polygons(domain, shapes[self.key])
        with open_raster(self.path, None, None) as raster:
            try:
                if self.option == "exposure":
                    return node_sums(raster, domain)[:, None]
                if not self.levels:
                    return node_means(raster, domain)[:, None]
                codes = [raster.where(float(level)) for level in self.levels]
                return np.column_stack([node_means(code, domain) for code in codes])
            except ApartError:
                return self._nothing(domain)

    def _of_polygons(self, domain: Domain, frame: gpd.GeoDataFrame) -> np.ndarray:
        if len(frame) == 0:
            return self._nothing(domain)
        if self.option == "exposure":
            shares = spread_shares(domain, frame, "areas of the exposure")
            return np.asarray(shares.T @ frame[VALUE].to_numpy(float)).reshape(-1, 1)
        found = polygon_means(frame, VALUE, domain)
        if not isinstance(found, pd.DataFrame):
            return found[:, None]
        known = np.where(np.isfinite(found.iloc[:, :1]), 0.0, np.nan)[:, 0]
        return np.column_stack([np.asarray(found.get(level, known), float) for level in self.levels])

    def _nothing(self, domain: Domain) -> np.ndarray:
        return np.full((domain.n_nodes, len(self.usual)), np.nan)


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """What is known of the nodes of a domain.

    Attributes
    ----------
    exposure : (n_nodes,) array
        Land in km² (square units of a local domain), or what was given.
    effort : (n_nodes,) array or None
    covariates : (n_nodes, k) array
        In their own units.
    gaps : dict of str to (n_nodes,) bool array
        Where a source has no value, by its key.
    """

    exposure: np.ndarray
    effort: np.ndarray | None
    covariates: np.ndarray
    gaps: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def seen(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that were reported."""
        return seen_exposure(self.exposure, self.effort)

    def by_name(self, effects: Effects) -> dict[str, Any]:
        """Return the covariates by name."""
        return covariates_of({term: self.covariates[:, j] for j, term in enumerate(effects.terms)})

    def linearised(
        self, effects: Effects, coefficients: Sequence[float], covariance: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of fixed effects, standardised as on the map of everything, and offsets.

        Levels that share a node are linearised about coefficients, intercept first, and their covariance.
        """
        own = replace(effects, columns=effects.standardised(self.covariates))
        columns, offset = own.linearised(np.array(coefficients), covariance)
        return columns, np.zeros(len(columns)) if offset is None else offset


@dataclass(frozen=True, eq=False)
class TileInputs:
    """What events are counted per, how many get reported and what may explain them, as all tiles read it.

    Attributes
    ----------
    exposure, effort : Source or None
        None: the area of the land; all events are reported.
    covariates : tuple of Source
    effects : Effects
        How covariates are standardised, in all tiles alike; without rows.
    fill_missing : "mean" or None
    digest : str
        A hash of all that the sources hold.
    """

    exposure: Source | None = None
    effort: Source | None = None
    covariates: tuple[Source, ...] = ()
    effects: Effects = field(default_factory=Effects)
    fill_missing: Literal["mean"] | None = None
    digest: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that was given."""
        return tuple(s for s in (self.exposure, self.effort, *self.covariates) if s is not None)

    def read(self, domain: Domain, shapes: Shapes, *, fill: bool = True) -> NodeInputs:
        """Return what is known of the nodes of a domain.

        Parameters
        ----------
        domain : Domain
        shapes : mapping of str to GeoDataFrame
            Polygons of the sources that are no rasters.
        fill : bool
            Give nodes without effort or covariate those of the nearest node that has some, or the mean of all land
            where that was asked for or none has. Exposure is zero where there is none, in any case.
        """
        gaps: dict[str, np.ndarray] = {}

        def values(source: Source) -> np.ndarray:
            found = source.at_nodes(domain, shapes)
            missing = gaps[source.key] = ~np.isfinite(found).all(axis=1)
            if not (fill and missing.any()):
                return found
            return filled_in(found, missing, domain, source, mean=self.fill_missing == "mean")

        exposure = domain.node_areas / domain.area_unit[0]
        if self.exposure is not None:
            found = self.exposure.at_nodes(domain, shapes)[:, 0]
            gaps[self.exposure.key] = ~np.isfinite(found)
            exposure = np.maximum(np.nan_to_num(found, nan=0.0), 0.0)
        effort = None if self.effort is None else np.clip(values(self.effort)[:, 0], 0.0, 1.0)
        columns = [values(source) for source in self.covariates]
        return NodeInputs(exposure, effort, np.hstack([np.ones((domain.n_nodes, 0)), *columns]), gaps)


def filled_in(
    values: np.ndarray, missing: np.ndarray, domain: Domain, source: Source, *, mean: bool
) -> np.ndarray:
    """Return values with gaps filled: from the nearest node, or with the mean of all land."""
    out = values.copy()
    if missing.all() or (mean and source.option == "covariates"):
        out[missing] = source.usual
    else:
        near = cKDTree(domain.node_points[~missing]).query(domain.node_points[missing])[1]
        out[missing] = values[~missing][near]
    return out


@dataclass(frozen=True)
class Checked:
    """What was found at the nodes of a tile's core, or of several together.

    Attributes
    ----------
    nodes : int
    area : float
    events : float
    gaps : tuple of (int, float)
        For each source, how many nodes have no value, and their area.
    bare, unseen : (float, int)
        Events where the exposure is zero, or the effort, and on how many nodes.
    """

    nodes: int
    area: float
    events: float
    gaps: tuple[tuple[int, float], ...]
    bare: tuple[float, int]
    unseen: tuple[float, int]

    def plus(self, other: Checked) -> Checked:
        """Return what was found in both."""
        gaps = tuple((a[0] + b[0], a[1] + b[1]) for a, b in zip(self.gaps, other.gaps, strict=True))
        bare, unseen = (
            (mine[0] + theirs[0], mine[1] + theirs[1])
            for mine, theirs in ((self.bare, other.bare), (self.unseen, other.unseen))
        )
        both = self.nodes + other.nodes, self.area + other.area, self.events + other.events
        return Checked(*both, gaps, bare, unseen)

    def judge(self, inputs: TileInputs) -> None:
        """Refuse sources that lack too much, and events where there can be none; tell of gaps that are filled."""
        for source, (n, area) in zip(inputs.sources, self.gaps, strict=True):
            if n:
                self._judge_gaps(source, n, area / self.area, inputs.fill_missing)
        for name, (lost, nodes), why in (
            ("exposure", self.bare, "so that nothing can happen there"),
            ("effort", self.unseen, "so that nobody could have reported them"),
        ):
            if lost:
                lie = "lies" if lost == 1 else "lie"
                whole = count(round(self.events), "event")
                raise DataError(
                    f"{events(lost)} of {whole} {lie} where the {name} is zero (on {count(nodes, 'node')}), {why}.",
                    option=name,
                    found=lost,
                    remedy=f"Check {option(name)} there, or leave these out.",
                )

    def _judge_gaps(self, source: Source, n: int, share: float, fill_missing: str | None) -> None:
        text = f"{source.words} has no value at {n:,} of {self.nodes:,} nodes ({percent(share, 2)} of land)"
        by_mean = source.option == "covariates" and fill_missing == "mean"
        if source.option != "exposure" and share >= SLIVERS and not by_mean:
            remedy = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
            if source.option == "effort":
                shares = "0 where nobody looked, 1 where all events are seen"
                remedy = f"Give {option('effort')} for all of the land: {shares}."
            raise DataError(f"{text}.", option=source.option, found=n, remedy=remedy)
        then = "they are given that of the nearest land"
        if source.option == "exposure":
            then = "it is taken as zero there"
        elif by_mean:
            then = "they are given the mean of the others"
        warn(InputWarning(f"{text}; {then}.", option=source.option, found=n))


# -- One tile: its land, points, inputs and what the map of everything has taught in, its part of the map out --


#: Prior standard deviation of fixed effects that are held.
HELD = 1e-4
#: Files of another format are not read.
FORMAT = 2
#: A tile, its points, and the polygons of its inputs.
Task = tuple[Tile, np.ndarray, Shapes]


@dataclass(frozen=True)
class SharedParameters:
    """What the map of everything says, for every tile.

    Attributes
    ----------
    lengthscale, sd : float
    coefficients : tuple of float
        Intercept (the log-intensity about which the field varies, per unit of exposure) and the effects of the
        standardised covariates.
    covariance : tuple of tuples of float
        How well these are known, together.
    """

    lengthscale: float
    sd: float
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    @classmethod
    def of(
        cls,
        lengthscale: float,
        sd: float,
        coefficients: Sequence[float],
        covariance: Sequence[Sequence[float]],
    ) -> SharedParameters:
        """Return what was learned, from arrays or lists."""
        rows = tuple(tuple(float(v) for v in row) for row in covariance)
        return cls(float(lengthscale), float(sd), tuple(float(v) for v in coefficients), rows)


@dataclass(frozen=True, eq=False)
class TileJob:
    """What all tiles share.

    Attributes
    ----------
    frame : Frame
    crs : str or None
        As WKT.
    nu, permeability, min_coverage, max_snap : float
    quantiles : tuple of float
    taught : Taught or None
        None: the tile holds everything, and learns for itself.
    inputs : TileInputs
        Exposure, effort and covariates.
    slopes : tuple of float
        Effects of the standardised covariates that tiles have which only learn lengthscale and sd.
    """

    frame: Frame
    crs: str | None
    nu: float
    permeability: float
    min_coverage: float
    max_snap: float
    quantiles: tuple[float, ...]
    taught: SharedParameters | None
    inputs: TileInputs
    slopes: tuple[float, ...] = ()

    @property
    def interval(self) -> float:
        """The probability between the first and the last quantile."""
        return round(self.quantiles[-1] - self.quantiles[0], 12)

    def key(self, tile: Tile, coords: np.ndarray) -> str:
        """Return a hash of all that the result of a tile depends on."""
        digest = hashlib.blake2b(digest_size=12)
        plain = (
            FORMAT, tile.core, tile.shown, tile.outer, self.frame.cell_size, self.frame.west, self.frame.north,
            self.crs, self.nu, self.permeability, self.min_coverage, self.max_snap, self.quantiles, self.taught,
            self.inputs.digest, self.inputs.effects.means.tolist(), self.inputs.effects.scales.tolist(), self.slopes,
        )  # fmt: skip
        digest.update(repr(plain).encode())
        digest.update(shapely.to_wkb(tile.geometry))
        digest.update(b"" if tile.barriers is None else shapely.to_wkb(tile.barriers))
        digest.update(np.ascontiguousarray(coords).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class FittedTile:
    """The part of the map that a tile has made.

    Attributes
    ----------
    statistics : dict of str to (rows, cols) array
        On the tile's `shown` cells, NaN off land.
    facts : dict
        Nodes, events and exposure of the core, hyperparameters, seconds, megabytes, warnings; the coefficients where
        they were learned here.
    """

    statistics: dict[str, np.ndarray]
    facts: dict[str, Any]


def tile_domain(tile: Tile, job: TileJob) -> Domain:
    """Return the land of a tile, halo included."""
    crs = None if job.crs is None else pyproj.CRS.from_wkt(job.crs)
    return Domain.from_geometry(
        tile.geometry,
        job.frame.grid(tile.outer, crs),
        barriers=tile.barriers,
        min_coverage=job.min_coverage,
    )


def fit_tile(task: Task, job: TileJob) -> FittedTile:
    """Fit one tile, wherever this is."""
    begin, captured = time.perf_counter(), list[GeobgpWarning]()
    tile = task[0]
    with captured_warnings(captured.append):
        posterior = tile_posterior(task, job)
    domain = posterior.domain
    inner = tile.shown.within(tile.outer)
    table = posterior.node_intensity(job.quantiles)
    grids = {str(name): domain.to_grid(table[name].to_numpy())[inner].astype(np.float32) for name in table}
    own = _own(tile, domain)
    assert posterior.observed is not None
    expected = posterior.seen_exposure * table["mean"].to_numpy()
    facts = {
        "nodes": domain.n_nodes,
        "core_nodes": int(own.sum()),
        "events": float(posterior.observed[own].sum()),
        "expected": float(expected[own].sum()),
        "exposure": float(posterior.exposure[own].sum()),
        "lengthscale": posterior.lengthscale,
        "sd": posterior.sd,
        "converged": posterior.converged,
        "elbo": posterior.elbo,
        "seconds": time.perf_counter() - begin,
        "megabytes": _peak(),
        # What became of points and inputs is told once, of all tiles.
        "warnings": [str(w) for w in captured if not isinstance(w, DroppedPointsWarning | InputWarning)],
    }
    if job.taught is None:
        facts["coefficients"] = posterior.with_interval(job.interval).coefficients.to_dict("records")
    del posterior, domain, table
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return FittedTile(grids, facts)


def check_tile(task: Task, job: TileJob) -> Checked:
    """Return what is to be known of a tile's inputs before anything is fitted."""
    tile, coords, shapes = task
    none = 0.0, 0
    try:
        domain = tile_domain(tile, job)
    except DomainError:  # slivers, which are no land
        return Checked(0, 0.0, 0.0, tuple((0, 0.0) for _ in job.inputs.sources), none, none)
    own = _own(tile, domain)
    with captured_warnings(lambda warning: None):
        given = job.inputs.read(domain, shapes, fill=False)
        counts = np.asarray(bin_points(coords, domain, max_snap=job.max_snap), float)
    missing = [own & given.gaps[source.key] for source in job.inputs.sources]
    bare = own & (counts > 0) & (given.exposure == 0)
    unseen = own & (counts > 0) & (given.effort == 0) if given.effort is not None else np.zeros_like(own)
    return Checked(
        int(own.sum()),
        float(domain.node_areas[own].sum()),
        float(counts[own].sum()),
        tuple((int(gap.sum()), float(domain.node_areas[gap].sum())) for gap in missing),
        (float(counts[bare].sum()), int(bare.sum())),
        (float(counts[unseen].sum()), int(unseen.sum())),
    )


def _own(tile: Tile, domain: Domain) -> np.ndarray:
    """Tell which nodes lie in a tile's core."""
    rows, cols = domain.node_rows + tile.outer.top, domain.node_cols + tile.outer.left
    core = tile.core
    return np.asarray(
        (rows >= core.top) & (rows < core.bottom) & (cols >= core.left) & (cols < core.right), bool
    )


def tile_posterior(task: Task, job: TileJob) -> Posterior:
    """Return the posterior of a tile: with what was taught held, or that of the whole fit where nothing was."""
    basis, counts, given = _observed(task, job)
    if job.taught is not None:
        return held_posterior(basis, counts, given, job)
    inputs = job.inputs
    model = LGCP(
        basis,
        Matern(job.nu),
        exposure=None if inputs.exposure is None else given.exposure,
        effort=given.effort,
        covariates=given.by_name(inputs.effects) or None,
        fill_missing=inputs.fill_missing,
    )
    return model.fit(counts)


def estimate_hyperparameters(task: Task, job: TileJob) -> tuple[np.ndarray, np.ndarray]:
    """Return the hyperparameters that a tile learns by itself, and their covariance."""
    with captured_warnings(lambda warning: None):
        basis, counts, given = _observed(task, job, part=True)
        columns, offset = given.linearised(job.inputs.effects, [0.0, *job.slopes])
        exposure = given.seen * np.exp(columns[:, 1:] @ np.array(job.slopes) + offset)
        fit = LGCP(basis, Matern(job.nu), exposure=exposure).fit(counts, measure=True).fit
    found = fit.hyper_mean, fit.hyper_cov
    del basis, fit
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return found


def _observed(task: Task, job: TileJob, *, part: bool = False) -> tuple[FullRank, Any, NodeInputs]:
    """Return the prior on a tile's land, the counts on it, and its inputs; gaps are filled if it is but a part."""
    tile, coords, shapes = task
    domain, part = tile_domain(tile, job), part or job.taught is not None
    given = job.inputs.read(domain, shapes, fill=part)
    counts: Any = bin_points(coords, domain, max_snap=job.max_snap)
    if part:
        # Points at sea may be moved to where nobody is at the edge of the halo; cores have been checked.
        counts = np.where(given.seen > 0, np.asarray(counts, float), 0.0)
    return FullRank(domain, permeability=job.permeability), counts, given


def held_posterior(basis: FullRank, counts: np.ndarray, given: NodeInputs, job: TileJob) -> Posterior:
    """Fit counts with lengthscale, sd, intercept and effects held; the joint uncertainty of these is in the result."""
    taught, effects = job.taught, job.inputs.effects
    assert taught is not None
    kernel = Matern(job.nu, taught.lengthscale, taught.sd)
    model, domain = LGCP(basis, kernel), basis.domain
    held_cov = np.array(taught.covariance)
    columns, offset = given.linearised(effects, taught.coefficients, held_cov)
    centre = taught.coefficients[0]
    slopes = np.array([0.0, *taught.coefficients[1:]])
    held = np.full(len(slopes), HELD)
    engine = engine_for(basis, kernel, columns, held, centre, None, model.scaling)
    size = float(np.sqrt(domain.node_areas.sum()))
    # What is held goes with the exposure, and from there back into the effects.
    likelihood = Poisson(counts, given.seen * np.exp(columns @ slopes + offset), centre)
    fit = run_one(engine, likelihood, Hyper.for_domain(kernel, size, domain.cell_size), basis, "map", False)
    found: Any = fit.states[0]
    state = replace(
        found, beta=found.beta + slopes, beta_cov=held_cov, offset=offset if offset.any() else None
    )
    from geobgp.posterior import Posterior

    return Posterior(
        fit=replace(fit, states=(state,)),
        basis=basis,
        kernel=kernel,
        likelihood=model.likelihood,
        exposure=given.exposure,
        exposure_kind="area" if job.inputs.exposure is None else "exposure",
        effort=given.effort,
        effects=replace(effects, columns=effects.standardised(given.covariates)),
        points={"used": int(counts.sum())},
        scaling=model.scaling,
        observed=counts,
    )


def coords_of(tiles: Sequence[Tile], frame: Frame, coords: np.ndarray) -> list[np.ndarray]:
    """Return the points of each tile, those of its halo included, in a fixed order.

    Points beyond the edge of all land may belong to the land next to it. Those beyond an edge within the land do not:
    they are on the land of another tile.
    """
    h, box = frame.cell_size, frame.box
    order = np.lexsort((coords[:, 1], coords[:, 0]))
    east, north = coords[order].T
    out = []
    for tile in tiles:
        outer = tile.outer
        left = -np.inf if outer.left == box.left else frame.west + outer.left * h
        right = np.inf if outer.right == box.right else frame.west + outer.right * h
        top = np.inf if outer.top == box.top else frame.north - outer.top * h
        bottom = -np.inf if outer.bottom == box.bottom else frame.north - outer.bottom * h
        some = slice(*np.searchsorted(east, [left, right]))
        inside = (north[some] >= bottom) & (north[some] <= top)
        out.append(np.column_stack([east[some][inside], north[some][inside]]))
    return out


def _peak() -> float:
    """Return the highest resident size of this process so far, in MB; NaN where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return float("nan")
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM")), float("nan"))


# -- Sources of tiles: exposure, effort and covariates read on the map of everything, checked, and cut for each tile --


#: Bytes of a file that are hashed at a time.
_CHUNK = 1 << 22
#: Files beside a raster that say nothing of its values: statistics and overviews, which viewers write.
_BESIDE = (".aux.xml", ".ovr")


@dataclass(frozen=True, eq=False)
class Areas:
    """Polygons of a source, on the plane of the land.

    Attributes
    ----------
    geometries : (k,) array of polygons
    values : (k,) array
    dry : (k,) array or None
        Area of each without water, over which amounts are spread; None for values that hold everywhere.
    """

    geometries: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    dry: np.ndarray | None = field(repr=False)

    @classmethod
    def of(cls, frame: gpd.GeoDataFrame, column: str, domain: Domain, what: str, *, spread: bool) -> Areas:
        """Return the polygons of a table; amounts are to be spread over their land."""
        geometries, dry = dry_areas(domain, frame, what)
        return cls(geometries, frame[column].to_numpy(), dry if spread else None)

    def within(self, box: shapely.Polygon, crs: Any) -> gpd.GeoDataFrame:
        """Return what lies in a box; of amounts the share of each polygon's land that does."""
        near = shapely.STRtree(self.geometries).query(box, predicate="intersects")
        cut = shapely.intersection(self.geometries[near], box)
        area = shapely.area(cut)
        keep = (area > 0) & ~np.asarray(pd.isna(self.values[near]), bool)
        near, cut, area = near[keep], cut[keep], area[keep]
        values = self.values[near]
        if self.dry is not None:
            dry = self.dry[near]
            values = values * np.divide(area, dry, out=np.zeros(len(dry)), where=dry > 0)
        return gpd.GeoDataFrame({VALUE: values}, geometry=cut, crs=crs)

    def digest(self) -> bytes:
        """Return a hash of all that they say."""
        found = hashlib.blake2b(digest_size=16)
        for shape in shapely.to_wkb(self.geometries):
            found.update(shape)
        found.update(repr(self.values.tolist()).encode())
        found.update(b"" if self.dry is None else self.dry.tobytes())
        return found.digest()


@dataclass(frozen=True, eq=False)
class TileSources:
    """What was given besides points and land.

    Attributes
    ----------
    inputs : TileInputs
        As tiles read it.
    areas : dict of str to Areas
        Those sources that are polygons, by their keys.
    units : Units
        What the mosaic is in.
    domain : Domain
        The cells of the map of everything.
    exposure : (n_nodes,) array or None
        On these cells.
    effort : (n_nodes,) array or None
    covariates : dict of str to (n_nodes,) array or Categorical
        In their own units, or as shares of levels.
    """

    inputs: TileInputs
    areas: dict[str, Areas]
    units: Units
    domain: Domain = field(repr=False)
    exposure: np.ndarray | None = field(repr=False)
    effort: np.ndarray | None = field(repr=False)
    covariates: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, o: TilesOptions, domain: Domain) -> TileSources:
        """Read all sources on the cells of the map of everything; what is wrong with them is said here."""
        captured: list[GeobgpWarning] = []
        with captured_warnings(captured.append):
            made = cls._read(o, domain)
        for warning in captured:
            # How many nodes have no value is told when those of the tiles are known.
            if not (
                warning.option in ("exposure", "effort", "covariates") and isinstance(warning.found, int)
            ):
                warn(warning)
        return made

    @classmethod
    def _read(cls, o: TilesOptions, domain: Domain) -> TileSources:
        areas: dict[str, Areas] = {}
        exposure, kind, per = None, "area", None
        given = _polygons(o.exposure, "exposure")
        if given is not None:
            exposure, kind = node_exposure(given, domain, o.exposure_column)
            per = Source("exposure", "exposure", _raster(given))
            if per.path is None:
                column = population_column(given, o.exposure_column)
                areas[per.key] = Areas.of(given, column, domain, "areas of the exposure", spread=True)
        units = _units(o.units or "", kind, domain)
        given = _polygons(o.effort, "effort")
        effort, seen = node_effort(given, domain, o.effort_column), None
        if effort is not None:
            seen = Source("effort", "effort", _raster(given), usual=(_mean(effort, domain),))
            if seen.path is None:
                column = share_column(given, o.effort_column)
                areas[seen.key] = Areas.of(given, column, domain, "effort", spread=False)
        values: dict[Term, np.ndarray] = {}
        sources: list[Source] = []
        covariates: Mapping[str, Any] = o.covariates or {}
        for name, value in covariates.items():
            found = covariate_columns(name, value, domain, o.fill_missing)
            levels = tuple(str(term.level) for term in found if term.level is not None)
            usual = tuple(_mean(column, domain) for column in found.values())
            source = Source("covariates", name, _raster(split_use(value)[0]), levels, usual)
            if source.path is None:
                column = next(c for c in value.columns if c != value.geometry.name)
                areas[source.key] = Areas.of(value, column, domain, "covariates", spread=False)
            values |= found
            sources.append(source)
        given = covariates_of(values)
        effects = fixed_effects(given, domain)
        bare = Effects(effects.terms, effects.means, effects.scales)
        inputs = TileInputs(per, seen, tuple(sources), bare, o.fill_missing)
        digest = _digest(inputs, areas, domain) if inputs.sources else ""
        return cls(replace(inputs, digest=digest), areas, units, domain, exposure, effort, given)

    @property
    def model(self) -> dict[str, Any]:
        """What the model of the map of everything is told of them."""
        return {"exposure": self.exposure, "effort": self.effort, "covariates": self.covariates or None}

    def shapes(self, tile: Tile, frame: Frame) -> dict[str, gpd.GeoDataFrame]:
        """Return the polygons within a tile, by the keys of their sources."""
        box = frame.polygon(tile.outer)
        return {key: areas.within(box, self.domain.crs) for key, areas in self.areas.items()}


def _polygons(value: Any, what: str) -> Any:
    """Return a source, with a file of polygons read."""
    if isinstance(value, str | Path) and kind_of(value) in ("vector", "parquet"):
        return read_vector(value, what)
    return value


def _raster(value: Any) -> str | None:
    """Return the path of a raster, from wherever it is read; None for polygons."""
    if not isinstance(value, str | Path):
        return None
    path, band = split_band(value)
    path = str(Path(path).resolve()) if Path(path).exists() else path
    return path if band is None else f"{path}|band={band}"


def _mean(values: np.ndarray, domain: Domain) -> float:
    return float(np.average(values, weights=domain.node_areas))


def _units(asked: str, kind: str, domain: Domain) -> Units:
    if asked.strip().lower() == RELATIVE_RISK and kind not in RISKS:
        raise DataError(
            f"{option('units', asked)} is the ratio to the average of all land, which no tile knows.",
            option="units",
            found=asked,
            remedy="Say 'per 100,000', or give expected numbers of events as polygons with a column 'expected'.",
        )
    return Units.of(asked, kind, domain.area_unit)


def _digest(inputs: TileInputs, areas: Mapping[str, Areas], domain: Domain) -> str:
    """Return a hash of all that sources hold; where they lie does not matter."""
    found = hashlib.blake2b(digest_size=12)
    found.update(repr(inputs.fill_missing).encode())
    for source in inputs.sources:
        found.update(repr((source.key, source.levels)).encode())
        own = areas[source.key].digest() if source.path is None else _raster_digest(source.path, domain)
        found.update(own)
    return found.hexdigest()


def _raster_digest(path: str, domain: Domain) -> bytes:
    """Return a hash of a raster: of its files where they are at hand, else of its values around the land."""
    import rasterio

    found = hashlib.blake2b(digest_size=16)
    file, band = split_band(path)
    with rasterio.open(file) as opened:
        files = sorted(Path(name) for name in opened.files if not name.endswith(_BESIDE))
        facts = (
            opened.shape,
            tuple(opened.transform),
            opened.nodatavals,
            opened.scales,
            opened.offsets,
            band,
        )
        found.update(repr(facts).encode() + (b"" if opened.crs is None else opened.crs.to_wkt().encode()))
    if files and all(one.is_file() for one in files):
        for one in files:
            with one.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    found.update(chunk)
        return found.digest()
    with open_raster(path, None, None) as raster:
        for values in blocks_on_land(raster, domain):
            found.update(np.ascontiguousarray(values).tobytes())
    return found.digest()
