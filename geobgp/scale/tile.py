"""One tile: its domain, counts and inputs, its fit, what is written of it."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely

from geobgp.data.counts import bin_points
from geobgp.data.effects import (
    Categorical,
    Effects,
    Group,
    Interaction,
    Smooth,
    by_name,
    column_of,
    split_use,
    with_source,
)
from geobgp.data.inputs import GivenPolygons, Inputs, Whole
from geobgp.data.rasters import blocks_on_land, open_raster, split_band
from geobgp.data.sources import EFFORT, EXPOSURE, Gaps, Key
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
from geobgp.files import as_frame, open_raster_file
from geobgp.inference.engine import engine_for
from geobgp.inference.problem import PlaceProblem, hyper_for
from geobgp.inference.relinearise import fit_problem
from geobgp.land.domain import Domain
from geobgp.land.regions import near_domain
from geobgp.linalg.blas import peak_memory
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.scale.tiling import Frame, Tile
from geobgp.text import count, events
from geobgp.units import RELATIVE_RISK, RISKS, Units

if TYPE_CHECKING:
    from geobgp.auto.options import TilesOptions
    from geobgp.posterior import Posterior


# -- Inputs of a tile: exposure, effort and covariates at its nodes, read from its own window of every source --


#: The column of a tile's polygons.
VALUE = "value"
#: Polygons that come with a tile, by what they are of.
Shapes = Mapping[Key, "gpd.GeoDataFrame"]


@dataclass(frozen=True, eq=False)
class TileInputs:
    """What events are counted per, how many get reported and what may explain them, as all tiles read it.

    Attributes
    ----------
    rasters : mapping of Key to str
        Paths of the rasters of which each tile reads its window; polygons come with the tile.
    whole : Whole
        What is known of all land: what the covariates are, and the means for land without any value near.
    fill_missing : "mean" or None
    digest : str
        A hash of all that the sources hold.
    exposed : bool
        Whether there is an exposure; else it is the area of the land.
    kinds : mapping of str to Categorical, Smooth, Group or Interaction
        What covariates are, of those that say so.
    """

    rasters: Mapping[Key, str] = field(default_factory=dict)
    whole: Whole = field(default_factory=Whole)
    fill_missing: Literal["mean"] | None = None
    digest: str = ""
    exposed: bool = False
    kinds: Mapping[str, Any] = field(default_factory=dict)

    def read(self, domain: Domain, shapes: Shapes, *, part: bool = True) -> Inputs:
        """Return what is known of the nodes of a domain.

        Parameters
        ----------
        domain : Domain
        shapes : mapping of str to GeoDataFrame
            Polygons of the sources that are no rasters.
        part : bool
            Whether the domain is but a part of the land: gaps are then filled, and what is to be said of sources has
            been said of all land.
        """
        sources: dict[Key, Any] = {**self.rasters, **shapes}
        exposure, effort = sources.get(EXPOSURE), sources.get(EFFORT)
        if not isinstance(exposure, str | None):
            geometry = np.array(exposure.geometry.to_numpy(), dtype=object)
            exposure = GivenPolygons(geometry, domain.crs, exposure[VALUE].to_numpy(float))
        covariates = {
            name: with_source(self.kinds.get(name), sources.get(Key("covariates", name)))
            for name in self.whole.effects.covariates
        }
        with captured_warnings(lambda warning: None) if part else nullcontext():
            return Inputs.read(
                domain,
                exposure=exposure,
                effort=effort,
                effort_column=None if isinstance(effort, str | None) else VALUE,
                covariates=covariates,
                fill_missing=self.fill_missing,
                part_of=self.whole if part else None,
            )


@dataclass(frozen=True)
class Checked:
    """What was found at the nodes of a tile's core, or of several together.

    Attributes
    ----------
    events : float
    gaps : mapping of Key to Gaps
        Where sources have no value.
    bare, unseen : (float, int)
        Events where the exposure is zero, or the effort, and on how many nodes.
    """

    events: float = 0.0
    gaps: Mapping[Key, Gaps] = field(default_factory=dict)
    bare: tuple[float, int] = (0.0, 0)
    unseen: tuple[float, int] = (0.0, 0)

    def plus(self, other: Checked) -> Checked:
        """Return what was found in both."""
        gaps = dict(self.gaps)
        for key, more in other.gaps.items():
            gaps[key] = gaps[key].plus(more) if key in gaps else more
        bare, unseen = (
            (mine[0] + theirs[0], mine[1] + theirs[1])
            for mine, theirs in ((self.bare, other.bare), (self.unseen, other.unseen))
        )
        return Checked(self.events + other.events, gaps, bare, unseen)

    def judge(self, fill_missing: str | None) -> None:
        """Refuse sources that lack too much, and events where there can be none; tell of gaps that are filled."""
        for gaps in self.gaps.values():
            gaps.judge(fill_missing)
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


# -- One tile: its land, points, inputs and what all tiles share in, its part of the map out -------


#: Prior standard deviation of fixed effects that are held.
HELD = 1e-4
#: Files of another format are not read.
FORMAT = 3
#: A tile, its points, and the polygons of its inputs.
Task = tuple[Tile, np.ndarray, Shapes]


@dataclass(frozen=True)
class SharedParameters:
    """What the pooled fit says, for every tile.

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
        cls, lengthscale: float, sd: float, coefficients: Sequence[float], covariance: Sequence[Sequence[float]]
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
    parameters : SharedParameters or None
        None: the tile holds all land, and learns for itself.
    inputs : TileInputs
        Exposure, effort and covariates.
    slopes : tuple of float
        Effects of the standardised covariates that tiles have which only learn lengthscale and sd.
    thresholds : mapping of str to float
        In the own unit of tiles, by the names that the probabilities of exceeding them have.
    """

    frame: Frame
    crs: str | None
    nu: float
    permeability: float
    min_coverage: float
    max_snap: float
    quantiles: tuple[float, ...]
    parameters: SharedParameters | None
    inputs: TileInputs
    slopes: tuple[float, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def interval(self) -> float:
        """The probability between the first and the last quantile."""
        return round(self.quantiles[-1] - self.quantiles[0], 12)

    def key(self, tile: Tile, coords: np.ndarray) -> str:
        """Return a hash of all that the result of a tile depends on."""
        digest = hashlib.blake2b(digest_size=12)
        plain = (
            FORMAT, tile.core, tile.shown, tile.outer, self.frame.cell_size, self.frame.west, self.frame.north,
            self.crs, self.nu, self.permeability, self.min_coverage, self.max_snap, self.quantiles, self.parameters,
            self.inputs.digest, self.inputs.whole.effects.means.tolist(), self.inputs.whole.effects.scales.tolist(),
            self.slopes, *self.thresholds.items(),
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
        tile.geometry, job.frame.grid(tile.outer, crs), barriers=tile.barriers, min_coverage=job.min_coverage
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
    above = {n: posterior.link.exceedance(posterior._shown_nodes, t) for n, t in job.thresholds.items()}
    values = {str(name): table[name].to_numpy() for name in table} | above
    grids = {name: domain.to_grid(one)[inner].astype(np.float32) for name, one in values.items()}
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
        "megabytes": peak_memory() / 1e6,
        # What became of points and inputs is told once, of all tiles.
        "warnings": [str(w) for w in captured if not isinstance(w, DroppedPointsWarning | InputWarning)],
    }
    if job.parameters is None:
        facts["coefficients"] = posterior.with_interval(job.interval).coefficients.to_dict("records")
    del posterior, domain, table
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return FittedTile(grids, facts)


def check_tile(task: Task, job: TileJob) -> Checked:
    """Return what is to be known of a tile's inputs before anything is fitted."""
    tile, coords, shapes = task
    try:
        domain = tile_domain(tile, job)
    except DomainError:  # slivers, which are no land
        return Checked()
    own = _own(tile, domain)
    with captured_warnings(lambda warning: None):
        inputs = job.inputs.read(domain, shapes)
        counts = np.asarray(bin_points(coords, domain, max_snap=job.max_snap), float)
    bare = own & (counts > 0) & (inputs.exposure == 0)
    unseen = own & (counts > 0) & (inputs.effort == 0) if inputs.effort is not None else np.zeros_like(own)
    return Checked(
        float(counts[own].sum()),
        inputs.gaps_in(own),
        (float(counts[bare].sum()), int(bare.sum())),
        (float(counts[unseen].sum()), int(unseen.sum())),
    )


def _own(tile: Tile, domain: Domain) -> np.ndarray:
    """Tell which nodes lie in a tile's core."""
    rows, cols = domain.node_rows + tile.outer.top, domain.node_cols + tile.outer.left
    core = tile.core
    return np.asarray((rows >= core.top) & (rows < core.bottom) & (cols >= core.left) & (cols < core.right), bool)


def tile_posterior(task: Task, job: TileJob) -> Posterior:
    """Return the posterior of a tile: with shared parameters held, or with its own where it holds all land."""
    basis, counts, inputs = _observed(task, job)
    if job.parameters is not None:
        return held_posterior(basis, counts, inputs, job)
    return LGCP.from_inputs(basis, inputs, Matern(job.nu)).fit(counts)


def estimate_hyperparameters(task: Task, job: TileJob) -> tuple[np.ndarray, np.ndarray]:
    """Return the hyperparameters that a tile learns by itself, and their covariance."""
    with captured_warnings(lambda warning: None):
        basis, counts, inputs = _observed(task, job, part=True)
        columns, offset = inputs.effects.linearised(np.array([0.0, *job.slopes]))
        log_rate = columns[:, 1:] @ np.array(job.slopes) + (0.0 if offset is None else offset)
        fixed = Inputs(basis.domain, inputs.seen * np.exp(log_rate), "exposure", effects=_intercept(basis.domain))
        fit = LGCP.from_inputs(basis, fixed, Matern(job.nu)).fit(counts, measure=True).fit
    theta = fit.hyper_mean, fit.hyper_cov
    del basis, fit
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return theta


def _intercept(domain: Domain) -> Effects:
    return Effects(columns=np.ones((domain.n_nodes, 1)))


def _observed(task: Task, job: TileJob, *, part: bool = False) -> tuple[FullRank, Any, Inputs]:
    """Return the prior on a tile's land, the counts on it, and its inputs; gaps are filled if it is but a part."""
    tile, coords, shapes = task
    domain, part = tile_domain(tile, job), part or job.parameters is not None
    inputs = job.inputs.read(domain, shapes, part=part)
    counts: Any = bin_points(coords, domain, max_snap=job.max_snap)
    if part:
        # Points at sea may be moved to where nobody is at the edge of the halo; cores have been checked.
        counts = np.where(inputs.seen > 0, np.asarray(counts, float), 0.0)
    return FullRank(domain, permeability=job.permeability), counts, inputs


def held_posterior(basis: FullRank, counts: np.ndarray, inputs: Inputs, job: TileJob) -> Posterior:
    """Fit counts with lengthscale, sd, intercept and effects held; the joint uncertainty of these is in the result."""
    parameters = job.parameters
    assert parameters is not None
    kernel = Matern(job.nu, parameters.lengthscale, parameters.sd)
    model = LGCP.from_inputs(basis, inputs, kernel)
    held_cov = np.array(parameters.covariance)
    columns, offset = inputs.effects.linearised(np.array(parameters.coefficients), held_cov)
    centre = parameters.coefficients[0]
    slopes = np.array([0.0, *parameters.coefficients[1:]])
    held = np.full(len(slopes), HELD)
    engine = engine_for(basis, kernel, columns, held, centre, None, model.scaling)
    # What is held goes with the exposure, and from there back into the effects.
    exposure = inputs.seen * np.exp(columns @ slopes + (0.0 if offset is None else offset))
    problem = PlaceProblem(engine, np.asarray(counts, float), exposure, model.family, centre)
    fit, _ = fit_problem(problem, hyper_for(basis, kernel), basis, Effects(columns=columns))
    found: Any = fit.states[0]
    state = replace(found, beta=found.beta + slopes, beta_cov=held_cov, offset=offset)
    from geobgp.posterior import Posterior

    return Posterior(
        fit=replace(fit, states=(state,)),
        basis=basis,
        kernel=kernel,
        likelihood=model.family,
        exposure=inputs.exposure,
        exposure_kind=inputs.exposure_kind,
        effort=inputs.effort,
        design=inputs.effects,
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


# -- Sources of tiles: exposure, effort and covariates read for the pooled fit, checked, and cut for each tile -


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
        Amounts per m² of their land, or what holds everywhere in them.
    """

    geometries: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, given: GivenPolygons, domain: Domain) -> Areas:
        """Return polygons that were read with their numbers."""
        frame = gpd.GeoDataFrame(geometry=list(given.geometry), crs=given.crs)
        return cls(near_domain(frame, domain), given.values)

    def within(self, box: shapely.Polygon, crs: Any) -> gpd.GeoDataFrame:
        """Return what lies in a box."""
        near = shapely.STRtree(self.geometries).query(box, predicate="intersects")
        cut = shapely.intersection(self.geometries[near], box)
        keep = (shapely.area(cut) > 0) & ~np.asarray(pd.isna(self.values[near]), bool)
        return gpd.GeoDataFrame({VALUE: self.values[near][keep]}, geometry=cut[keep], crs=crs)

    def digest(self) -> bytes:
        """Return a hash of all that they say."""
        hasher = hashlib.blake2b(digest_size=16)
        for shape in shapely.to_wkb(self.geometries):
            hasher.update(shape)
        hasher.update(repr(self.values.tolist()).encode())
        return hasher.digest()


@dataclass(frozen=True, eq=False)
class TileSources:
    """What was given besides points and land.

    Attributes
    ----------
    inputs : TileInputs
        As tiles read it.
    areas : dict of Key to Areas
        Those sources that are polygons.
    units : Units
        What the mosaic is in.
    coarse : Inputs
        On the cells of the pooled fit.
    """

    inputs: TileInputs
    areas: dict[Key, Areas]
    units: Units
    coarse: Inputs = field(repr=False)

    @classmethod
    def read(cls, o: TilesOptions, domain: Domain) -> TileSources:
        """Read all sources on the cells of the pooled fit; what is wrong with them is said here."""
        given: dict[Key, Any] = {EXPOSURE: o.exposure, EFFORT: o.effort}
        kinds = {
            name: with_source(value, VALUE)
            for name, value in (o.covariates or {}).items()
            if isinstance(value, Categorical | Smooth | Group | Interaction)
        }
        given |= {Key("covariates", name): value for name, value in (o.covariates or {}).items()}
        given = {
            key: as_frame(value.source if key.name in kinds else value, key.option)
            for key, value in given.items()
            if not isinstance(value, Interaction)
        }
        covariates = {
            name: with_source(kinds.get(name), given.get(Key("covariates", name))) for name in o.covariates or {}
        }
        captured: list[GeobgpWarning] = []
        with captured_warnings(captured.append):
            coarse = Inputs.read(
                domain,
                exposure=given[EXPOSURE],
                exposure_column=o.exposure_column,
                effort=given[EFFORT],
                effort_column=o.effort_column,
                covariates=covariates,
                fill_missing=o.fill_missing,
            )
        for warning in captured:
            # How many nodes have no value is told when those of the tiles are known.
            if not (warning.option in ("exposure", "effort", "covariates") and isinstance(warning.found, int)):
                warn(warning)
        units = _units(o.units or "", coarse.exposure_kind, domain)
        read: dict[Key, Any] = {EXPOSURE: coarse.given, EFFORT: coarse.given_effort}
        rasters: dict[Key, str] = {}
        areas: dict[Key, Areas] = {}
        for key, value in given.items():
            if isinstance(value, str | Path):
                rasters[key] = _raster(split_use(value)[0])
            elif key in read and value is not None:
                areas[key] = Areas.of(read[key], domain)
            elif value is not None:
                column = column_of(key.name, value, None, isinstance(kinds.get(key.name), Group))
                areas[key] = Areas(near_domain(value, domain), column.to_numpy())
        exposed = o.exposure is not None
        inputs = TileInputs(rasters, coarse.whole, o.fill_missing, exposed=exposed, kinds=kinds)
        digest = _digest(inputs, areas, domain) if rasters or areas else ""
        return cls(replace(inputs, digest=digest), areas, units, coarse)

    @property
    def model(self) -> dict[str, Any]:
        """Arguments of the model of the pooled fit."""
        coarse, effects = self.coarse, self.coarse.effects
        covariates = by_name(effects, effects.columns[:, 1:] * effects.scales + effects.means)
        exposure = coarse.exposure if self.inputs.exposed else None
        return {"exposure": exposure, "effort": coarse.effort, "covariates": covariates or None}

    def shapes(self, tile: Tile, frame: Frame) -> dict[Key, gpd.GeoDataFrame]:
        """Return the polygons within a tile."""
        box = frame.polygon(tile.outer)
        return {key: areas.within(box, self.coarse.domain.crs) for key, areas in self.areas.items()}


def _raster(value: str | Path) -> str:
    """Return the path of a raster, from wherever it is read."""
    path, band = split_band(value)
    path = str(Path(path).resolve()) if Path(path).exists() else path
    return path if band is None else f"{path}|band={band}"


def _units(asked: str, kind: str, domain: Domain) -> Units:
    if asked.strip().lower() == RELATIVE_RISK and kind not in RISKS:
        raise DataError(
            f"{option('units', asked)} is the ratio to the average of all land, which no tile knows.",
            option="units",
            found=asked,
            remedy="Say 'per 100,000', or give expected numbers of events as polygons with a column 'expected'.",
        )
    return Units.of(asked, kind, domain.area_unit)


def _digest(inputs: TileInputs, areas: Mapping[Key, Areas], domain: Domain) -> str:
    """Return a hash of all that sources hold; where they lie does not matter."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(repr((inputs.fill_missing, inputs.whole.effects.terms)).encode())
    digest.update(repr(sorted((name, repr(vars(kind))) for name, kind in inputs.kinds.items())).encode())
    for key in sorted({*inputs.rasters, *areas}):
        digest.update(repr(tuple(key)).encode())
        digest.update(areas[key].digest() if key in areas else _raster_digest(inputs.rasters[key], domain))
    return digest.hexdigest()


def _raster_digest(path: str, domain: Domain) -> bytes:
    """Return a hash of a raster: of its files where they are at hand, else of its values around the land."""
    digest = hashlib.blake2b(digest_size=16)
    file, band = split_band(path)
    with open_raster_file(file) as opened:
        files = sorted(Path(name) for name in opened.files if not name.endswith(_BESIDE))
        facts = (opened.shape, tuple(opened.transform), opened.nodatavals, opened.scales, opened.offsets, band)
        digest.update(repr(facts).encode() + (b"" if opened.crs is None else opened.crs.to_wkt().encode()))
    if files and all(one.is_file() for one in files):
        for one in files:
            with one.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        return digest.digest()
    with open_raster(path, None, None) as raster:
        for values in blocks_on_land(raster, domain):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.digest()
