"""One tile: its land, points, inputs and what the map of everything has taught in, its part of the map out."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely

from geobgp.data.counts import bin_points
from geobgp.errors import DomainError, DroppedPointsWarning, GeobgpWarning, InputWarning, hearing
from geobgp.inference.engine import engine_for
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Poisson
from geobgp.inference.limits import run_one
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.scale.tile_inputs import Checked, Inputs, NodeInputs, Shapes
from geobgp.scale.tiling import Frame, Tile

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: Prior standard deviation of fixed effects that are held.
HELD = 1e-4
#: Files of another format are not read.
FORMAT = 2
#: A tile, its points, and the polygons of its inputs.
Task = tuple[Tile, np.ndarray, Shapes]


@dataclass(frozen=True)
class Taught:
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
    ) -> Taught:
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
    inputs : Inputs
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
    taught: Taught | None
    inputs: Inputs
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
class Fitted:
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


def fit_tile(task: Task, job: TileJob) -> Fitted:
    """Fit one tile, wherever this is."""
    begin, heard = time.perf_counter(), list[GeobgpWarning]()
    tile = task[0]
    with hearing(heard.append):
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
        "warnings": [str(w) for w in heard if not isinstance(w, DroppedPointsWarning | InputWarning)],
    }
    if job.taught is None:
        facts["coefficients"] = posterior.with_interval(job.interval).coefficients.to_dict("records")
    del posterior, domain, table
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return Fitted(grids, facts)


def check_tile(task: Task, job: TileJob) -> Checked:
    """Return what is to be known of a tile's inputs before anything is fitted."""
    tile, coords, shapes = task
    none = 0.0, 0
    try:
        domain = tile_domain(tile, job)
    except DomainError:  # slivers, which are no land
        return Checked(0, 0.0, 0.0, tuple((0, 0.0) for _ in job.inputs.sources), none, none)
    own = _own(tile, domain)
    with hearing(lambda warning: None):
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


def learn_tile(task: Task, job: TileJob) -> tuple[np.ndarray, np.ndarray]:
    """Return the hyperparameters that a tile learns by itself, and their covariance."""
    with hearing(lambda warning: None):
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
