"""One tile: its land, its points and what the map of everything has taught in, its part of the map out."""

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
from geobgp.errors import DroppedPointsWarning, GeobgpWarning, hearing
from geobgp.inference.engine import engine_for
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Poisson
from geobgp.inference.limits import run_one
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.scale.tiling import Frame, Tile

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: Prior standard deviation of fixed effects that are held.
HELD = 1e-4
#: Files of another format are not read.
FORMAT = 1


@dataclass(frozen=True)
class Taught:
    """What the map of everything says, for every tile.

    Attributes
    ----------
    lengthscale, sd : float
    intercept, intercept_sd : float
        Log-intensity about which the field varies, per km², and how well it is known.
    """

    lengthscale: float
    sd: float
    intercept: float
    intercept_sd: float


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
    """

    frame: Frame
    crs: str | None
    nu: float
    permeability: float
    min_coverage: float
    max_snap: float
    quantiles: tuple[float, ...]
    taught: Taught | None

    def key(self, tile: Tile, coords: np.ndarray) -> str:
        """Return a hash of all that the result of a tile depends on."""
        digest = hashlib.blake2b(digest_size=12)
        plain = (
            FORMAT, tile.core, tile.shown, tile.outer, self.frame.cell_size, self.frame.west, self.frame.north,
            self.crs, self.nu, self.permeability, self.min_coverage, self.max_snap, self.quantiles, self.taught,
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
        Nodes, events of the core, hyperparameters, seconds, megabytes, warnings.
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


def fit_tile(task: tuple[Tile, np.ndarray], job: TileJob) -> Fitted:
    """Fit one tile, wherever this is."""
    begin, heard = time.perf_counter(), list[GeobgpWarning]()
    tile, coords = task
    with hearing(heard.append):
        posterior = tile_posterior(tile, coords, job)
    domain = posterior.domain
    inner = tile.shown.within(tile.outer)
    table = posterior.node_intensity(job.quantiles)
    grids = {str(name): domain.to_grid(table[name].to_numpy())[inner].astype(np.float32) for name in table}
    rows, cols = domain.node_rows + tile.outer.top, domain.node_cols + tile.outer.left
    own = (
        (rows >= tile.core.top)
        & (rows < tile.core.bottom)
        & (cols >= tile.core.left)
        & (cols < tile.core.right)
    )
    assert posterior.observed is not None
    expected = posterior.exposure * table["mean"].to_numpy()
    facts = {
        "nodes": domain.n_nodes,
        "core_nodes": int(own.sum()),
        "events": float(posterior.observed[own].sum()),
        "expected": float(expected[own].sum()),
        "lengthscale": posterior.lengthscale,
        "sd": posterior.sd,
        "converged": posterior.converged,
        "elbo": posterior.elbo,
        "seconds": time.perf_counter() - begin,
        "megabytes": _peak(),
        "warnings": [str(w) for w in heard if not isinstance(w, DroppedPointsWarning)],
    }
    del posterior, domain, table
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return Fitted(grids, facts)


def tile_posterior(tile: Tile, coords: np.ndarray, job: TileJob, *, measure: bool = False) -> Posterior:
    """Return the posterior of a tile: with what was taught held, or learned anew where nothing was."""
    domain = tile_domain(tile, job)
    basis = FullRank(domain, permeability=job.permeability)
    counts = bin_points(coords, domain, max_snap=job.max_snap)
    if job.taught is None:
        return LGCP(basis, Matern(job.nu)).fit(counts, measure=measure)
    return held_posterior(basis, np.asarray(counts, float), job.taught, job.nu)


def learn_tile(task: tuple[Tile, np.ndarray], job: TileJob) -> tuple[np.ndarray, np.ndarray]:
    """Return the hyperparameters that a tile learns by itself, and their covariance."""
    with hearing(lambda warning: None):
        fit = tile_posterior(*task, replace(job, taught=None), measure=True).fit
    found = fit.hyper_mean, fit.hyper_cov
    del fit
    gc.collect()  # factors refer to each other, and the next tile needs their room
    return found


def held_posterior(basis: FullRank, counts: np.ndarray, taught: Taught, nu: float) -> Posterior:
    """Fit counts with lengthscale, sd and intercept held; the intercept's own uncertainty is in the result."""
    kernel = Matern(nu, taught.lengthscale, taught.sd)
    model, domain = LGCP(basis, kernel), basis.domain
    columns = np.ones((domain.n_nodes, 1))
    engine = engine_for(basis, kernel, columns, np.array([HELD]), taught.intercept, None, model.scaling)
    size = float(np.sqrt(domain.node_areas.sum()))
    likelihood = Poisson(counts, model.seen_exposure, taught.intercept)
    fit = run_one(engine, likelihood, Hyper.for_domain(kernel, size, domain.cell_size), basis, "map", False)
    state = replace(fit.states[0], beta_cov=np.array([[taught.intercept_sd**2]]))  # type: ignore[type-var]
    from geobgp.posterior import Posterior

    return Posterior(
        fit=replace(fit, states=(state,)),
        basis=basis,
        kernel=kernel,
        likelihood=model.likelihood,
        exposure=model.exposure,
        exposure_kind=model.exposure_kind,
        effects=model.effects,
        points={"used": int(counts.sum())},
        scaling=model.scaling,
        observed=counts,
    )


def coords_of(tiles: Sequence[Tile], frame: Frame, coords: np.ndarray) -> list[np.ndarray]:
    """Return the points of each tile, those of its halo included, in a fixed order."""
    h = frame.cell_size
    order = np.lexsort((coords[:, 1], coords[:, 0]))
    east, north = coords[order].T
    out = []
    for tile in tiles:
        left, right = frame.west + tile.outer.left * h, frame.west + tile.outer.right * h
        top, bottom = frame.north - tile.outer.top * h, frame.north - tile.outer.bottom * h
        first, last = np.searchsorted(east, [left - 2 * h, right + 2 * h])
        some = slice(first, last)
        inside = (north[some] >= bottom - 2 * h) & (north[some] <= top + 2 * h)
        out.append(np.column_stack([east[some][inside], north[some][inside]]))
    return out


def _peak() -> float:
    """Return the highest resident size of this process so far, in MB; NaN where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return float("nan")
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM")), float("nan"))
