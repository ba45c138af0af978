"""Ours and its peers on the same simulated coast, whose intensity is known.

The land (100 km wide: a long fjord, a river narrower than a cell, three islands) and the intensity are made
here, not drawn from any of the models. Each seed gives one pattern to fit and an independent one, of the
same intensity, to score.

    python benchmarks/peers.py [--seeds 3] [--quick] [--without NAME ...] [--limit 60]

GPflow, R (mgcv, spatstat) and PyMC take part where they are installed. PyMC may live elsewhere: name its
interpreter in the environment variable GEOBGP_BENCH_PYTHON.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from functools import partial  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.special import xlogy  # noqa: E402

if TYPE_CHECKING:
    import shapely

    from geobgp import Domain

# geobgp, shapely and the peers are imported where they are used: PyMC's interpreter may have none of them.

POINTS = 1500
#: Standard normal quantile of a 90 % interval.
Z90 = 1.6448536269514722
#: Estimates under this share of the mean intensity are raised to it, so that logarithms exist.
FLOOR = 1e-6


# -- the coast and the truth


@dataclass(frozen=True)
class Cut:
    """A line y = centre(x) from a tip to the west or to the east, across which the intensity jumps."""

    tip: float
    middle: float
    sway: float
    period: float
    west: bool

    def centre(self, x: np.ndarray) -> np.ndarray:
        """Return where the cut lies at x."""
        return self.middle + self.sway * np.sin((x - self.tip) / self.period)

    def side(self, xy: np.ndarray) -> np.ndarray:
        """Return +1 just north of the cut, -1 just south of it, and every value between around its tip."""
        along = (xy[:, 0] - self.tip) * (1 if self.west else -1)
        across = xy[:, 1] - self.centre(xy[:, 0])
        near = 1 - np.exp(-(along**2 + across**2) / (2 * 6.0**2))
        return np.sin(np.arctan2(across, along) / 2) * near


FJORD = Cut(tip=64.0, middle=47.0, sway=2.0, period=11.0, west=True)
RIVER = Cut(tip=46.0, middle=30.0, sway=3.0, period=9.0, west=False)


def coast() -> tuple[shapely.Geometry, shapely.Geometry]:
    """Return land and river in km: 100 km x 80 km with a fjord, and three islands."""
    import shapely

    block = shapely.segmentize(shapely.box(1.5, 17, 98.5, 78).buffer(-9).buffer(9), 0.5)
    x, y = shapely.get_coordinates(block).T
    main = shapely.Polygon(np.c_[x + 1.5 * np.sin(y / 5), y + 1.5 * np.sin(x / 4)])
    at = np.linspace(-5, FJORD.tip, 200)
    width = 1.0 + 1.6 * (FJORD.tip - at) / FJORD.tip
    banks = np.r_[np.c_[at, FJORD.centre(at) + width], np.c_[at, FJORD.centre(at) - width][::-1]]
    islands = [
        shapely.affinity.scale(shapely.Point(x, y).buffer(1.0, quad_segs=16), a, b)
        for x, y, a, b in ((28, 6, 11, 4.5), (57, 6.5, 8, 4), (84, 6, 5, 5))
    ]
    at = np.linspace(RIVER.tip, 105, 300)
    river = shapely.LineString(np.c_[at, RIVER.centre(at)]).buffer(0.2, cap_style="flat")
    return shapely.union_all([main.difference(shapely.Polygon(banks)), *islands]), river


def truth(domain: Domain) -> np.ndarray:
    """Return the known intensity at the nodes, events per km²."""
    xy = domain.node_points
    north, upper = FJORD.side(xy), RIVER.side(xy)

    def bump(x: float, y: float, width: float) -> np.ndarray:
        return np.exp(-np.square(xy - (x, y)).sum(axis=1) / (2 * width**2))

    log = 0.9 * north - 0.8 * upper
    log += 1.6 * bump(24, 55, 7) * (1 + north) / 2 - 1.2 * bump(48, 54, 8) * (1 + north) / 2
    log += 1.3 * bump(72, 23, 6) * (1 - upper) / 2 - 0.9 * bump(18, 28, 9)
    log += 1.2 * bump(86, 66, 8) + 1.0 * bump(30, 38, 6) * (1 - north) / 2
    out_at_sea = xy[:, 1] < 12
    island = np.select([xy[:, 0] < 43, xy[:, 0] < 70], [0.9 + 0.04 * (xy[:, 0] - 28), -0.9], 0.4)
    value = np.exp(np.where(out_at_sea, island, log))
    return POINTS * value / (value * domain.node_areas).sum()


@dataclass(frozen=True)
class Job:
    """What every way is given: the land, the points, and their counts on common nodes."""

    domain: Domain
    land: shapely.Geometry
    river: shapely.Geometry
    points: np.ndarray
    counts: np.ndarray
    seed: int
    limit: float
    quick: bool


@dataclass(frozen=True)
class Estimate:
    """Intensity at the nodes: posterior mean, median, 90 % interval where there is one."""

    mean: np.ndarray
    median: np.ndarray
    interval: tuple[np.ndarray, np.ndarray] | None = None
    note: str = ""
    seconds: float | None = None


class AbsentError(Exception):
    """A peer that is not installed here."""


# -- ours


def from_posterior(posterior: Any, at: np.ndarray | slice = slice(None)) -> Estimate:
    found = posterior.node_intensity((0.05, 0.5, 0.95)).iloc[at]
    info = posterior.basis_info
    note = (
        f"{info['boundary']}, m = {info['m']}, lengthscale {posterior.lengthscale:.1f} km, "
        f"sd {posterior.sd:.2f}{'' if posterior.converged else ', NOT converged'}"
    )
    q05, q50, q95 = (found[name].to_numpy() for name in ("q05", "q50", "q95"))
    return Estimate(found["mean"].to_numpy(), q50, (q05, q95), note)


def ours(job: Job, m: int | str, boundary: str) -> Estimate:
    from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, bin_points

    domain = Domain.from_polygons(job.land, water=job.river, cell_size=job.domain.cell_size, crs="local")
    counts = bin_points(job.points, domain)
    if m == "full":
        return from_posterior(LGCP(FullRank(domain, boundary=boundary)).fit(counts))
    basis = HarmonicBasis.compute(domain, m=m, boundary=boundary, cache=False)
    return from_posterior(LGCP(basis, Matern(1.5)).fit(counts))


def one_call(job: Job) -> Estimate:
    from geobgp import map_intensity

    size = job.domain.cell_size
    return from_posterior(
        map_intensity(job.points, job.land, water=job.river, cell_size=size, crs="local", cache=False)
    )


def boundary_blind(job: Job) -> Estimate:
    """Our engine with features of the whole box; the land is only where there is exposure."""
    import shapely

    from geobgp import LGCP, Domain, HarmonicBasis, Matern

    mine, grid = job.domain, job.domain.grid
    box = Domain.from_polygons(shapely.box(*grid.bounds), cell_size=grid.cell_size, crs="local")
    u, v = mine.node_cols + 0.5, mine.node_rows + 0.5
    at = box.locate(np.column_stack(grid.from_cells(u, v)))
    exposure = np.bincount(at, mine.node_areas, minlength=box.n_nodes)
    counts = np.bincount(at, job.counts, minlength=box.n_nodes)
    basis = HarmonicBasis.compute(box, m=256, cache=False)
    return from_posterior(LGCP(basis, Matern(1.5), exposure=exposure).fit(counts), at)


# -- kernels


def kernel_estimate(job: Job, edge: bool) -> Estimate:
    """Gaussian kernels; the bandwidth has the best leave-one-out Poisson log-likelihood.

    With edge correction the estimate is divided by the kernel's mass on land.
    """
    nodes, areas, points = job.domain.node_points, job.domain.node_areas, job.points

    def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.square(a[:, :1] - b[:, 0]) + np.square(a[:, 1:] - b[:, 1])

    to_points, to_nodes = squared(points, points), squared(points, nodes)
    between = squared(nodes, nodes) if edge else None
    best, chosen, width = -np.inf, np.zeros(0), 0.0
    for trial in np.geomspace(1.0, 20.0, 20):
        scale = 1 / (2 * np.pi * trial**2)
        kernel = scale * np.exp(to_nodes / (-2 * trial**2))
        rate = kernel.sum(axis=0)
        left_out = scale * (np.exp(to_points / (-2 * trial**2)).sum(axis=1) - 1)
        if between is not None:
            # The mass of a narrow kernel is not summed well over nodes; none is over 1.
            rate = rate / np.minimum(scale * np.exp(between / (-2 * trial**2)) @ areas, 1.0)
            left_out = left_out / np.minimum(kernel @ areas, 1.0)
        score = np.log(np.maximum(left_out, 1e-300)).sum() - rate @ areas
        if score > best:
            best, chosen, width = score, rate, trial
    return Estimate(chosen, chosen, None, f"bandwidth {width:.2f} km")


# -- GPflow


class OutOfTimeError(Exception):
    """The time limit of an optimiser was reached."""


def gpflow_svgp(job: Job) -> Estimate:
    """Matern 3/2 with 200 inducing points by k-means; log area is in the mean function."""
    if importlib.util.find_spec("gpflow") is None:
        raise AbsentError
    import gpflow
    import tensorflow as tf
    from scipy.cluster.vq import kmeans2

    class LogArea(gpflow.functions.MeanFunction):
        """A constant plus the third column."""

        def __init__(self, start: float) -> None:
            super().__init__()
            self.constant = gpflow.Parameter(start)

        def __call__(self, X: Any) -> Any:
            return self.constant + X[:, 2:3]

    begin = time.perf_counter()
    domain = job.domain
    X = np.c_[domain.node_points, np.log(domain.node_areas)]
    centres, _ = kmeans2(domain.node_points, 50 if job.quick else 200, seed=job.seed, minit="points")
    mean = LogArea(float(np.log(job.counts.sum() / domain.node_areas.sum())))
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern32(lengthscales=15.0, active_dims=[0, 1]),
        gpflow.likelihoods.Poisson(),
        np.c_[centres, np.zeros(len(centres))],
        mean_function=mean,
    )
    gpflow.set_trainable(model.inducing_variable, False)
    data = (tf.constant(X), tf.constant(job.counts[:, None]))
    rounds, end = 0, "converged"

    def watch(step: int, *_: Any) -> None:
        nonlocal rounds
        rounds = step
        if time.perf_counter() - begin > job.limit:
            raise OutOfTimeError

    limit = 1000
    try:
        result = gpflow.optimizers.Scipy().minimize(
            model.training_loss_closure(data),
            model.trainable_variables,
            method="L-BFGS-B",
            options={"maxiter": limit, "maxfun": 2 * limit},
            step_callback=watch,
        )
        end = "converged" if result.success else f"stopped at {limit} rounds"
    except OutOfTimeError:
        end = f"stopped at {job.limit:.0f} s"
    centre, variance = (part.numpy().ravel() for part in model.predict_f(tf.constant(X)))
    centre, sd = centre - X[:, 2], np.sqrt(variance)
    length = float(model.kernel.lengthscales.numpy())
    note = f"{len(centres)} inducing points, {rounds} rounds of L-BFGS, {end}; lengthscale {length:.1f} km"
    interval = np.exp(centre - Z90 * sd), np.exp(centre + Z90 * sd)
    seconds = time.perf_counter() - begin
    return Estimate(np.exp(centre + sd**2 / 2), np.exp(centre), interval, note, seconds)


# -- PyMC, here or in an interpreter of its own


def hsgp(xy: np.ndarray, areas: np.ndarray, counts: np.ndarray, seed: int, limit: float, quick: bool) -> dict:
    """Fit a Hilbert-space GP (Matern 3/2) by mean-field ADVI; return quantiles, seconds and a note."""
    import pymc as pm

    begin = time.perf_counter()
    centre = (xy.max(axis=0) + xy.min(axis=0)) / 2
    sizes = [10, 8] if quick else [22, 18]
    with pm.Model() as model:
        length = pm.InverseGamma("length", mu=20.0, sigma=15.0)
        sd = pm.HalfNormal("sd", 2.0)
        level = pm.Normal("level", float(np.log(counts.sum() / areas.sum())), 3.0)
        prior = pm.gp.HSGP(m=sizes, c=1.3, cov_func=sd**2 * pm.gp.cov.Matern32(2, ls=length))
        f = prior.prior("f", X=xy - centre)
        log = pm.Deterministic("log", level + f)
        pm.Poisson("y", mu=pm.math.exp(log + np.log(areas)), observed=counts)
    steps, first = 2000 if quick else 10_000, 0.0

    def watch(*_: Any) -> None:
        nonlocal first
        first = first or time.perf_counter()
        if time.perf_counter() - first > limit:
            raise StopIteration

    with model:
        callbacks = [watch, pm.callbacks.CheckParametersConvergence(diff="relative", tolerance=2e-3)]
        fitted = pm.fit(
            steps,
            method="advi",
            callbacks=callbacks,
            random_seed=seed,
            progressbar=False,
            obj_optimizer=pm.adam(learning_rate=0.01),
            # From PyMC's own start, 0.7, exp() throws the first steps off, some of them for good.
            start_sigma={v.name: np.full(v.shape.eval(), 0.1) for v in model.free_RVs},
        )
        draws = fitted.sample(1000, random_seed=seed).posterior
    used = len(fitted.hist)
    end = "all of them" if used >= steps else "converged"
    if time.perf_counter() - first > limit:
        end = f"stopped at {limit:.0f} s"
    log_draws = draws["log"].to_numpy().reshape(-1, len(xy))
    q05, q50, q95 = np.exp(np.quantile(log_draws, (0.05, 0.5, 0.95), axis=0))
    note = (
        f"PyMC {pm.__version__}, {sizes[0]} x {sizes[1]} features, ADVI, {used:,} steps, {end}; "
        f"lengthscale {float(draws['length'].mean()):.1f} km"
    )
    seconds = time.perf_counter() - begin
    return {
        "mean": np.exp(log_draws).mean(axis=0),
        "q05": q05,
        "q50": q50,
        "q95": q95,
        "note": note,
        "seconds": seconds,
    }


def timed_hsgp(**given: Any) -> dict:
    """Fit twice on the first seed: the compiler's first run is not the method's time."""
    if given["seed"] == 0:
        some = {key: given[key][:50] for key in ("xy", "areas", "counts")}
        hsgp(**(given | some | {"limit": 0.0, "quick": True}))
    return hsgp(**given)


def pymc_hsgp(job: Job) -> Estimate:
    given = {
        "xy": job.domain.node_points,
        "areas": job.domain.node_areas,
        "counts": job.counts,
        "seed": job.seed,
        "limit": job.limit,
        "quick": job.quick,
    }
    python = os.environ.get("GEOBGP_BENCH_PYTHON")
    if importlib.util.find_spec("pymc") is not None:
        found: Mapping[str, Any] = timed_hsgp(**given)
    elif python:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "given.npz", Path(folder) / "found.npz"
            np.savez(source, **given)
            call([python, str(Path(__file__).resolve()), "--hsgp", str(source), str(target)], job.limit + 300)
            with np.load(target) as file:
                found = dict(file)
    else:
        raise AbsentError
    return from_files(found)


def from_files(found: Mapping[str, Any]) -> Estimate:
    interval = None if np.isnan(found["q05"]).all() else (found["q05"], found["q95"])
    return Estimate(found["mean"], found["q50"], interval, str(found["note"]), float(found["seconds"]))


def call(command: list[str], limit: float) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed")


# -- R


def by_r(job: Job, way: str) -> Estimate:
    import pandas as pd
    import shapely

    if shutil.which("Rscript") is None:
        raise AbsentError
    domain = job.domain
    rings = []
    for part in shapely.get_parts(domain.geometry):
        for ring, hole in ((part.exterior, 0), *((r, 1) for r in part.interiors)):
            xy = shapely.get_coordinates(shapely.simplify(ring, 0.002))[:-1]
            # spatstat wants outer rings anticlockwise and holes clockwise.
            xy = xy if shapely.is_ccw(ring) != bool(hole) else xy[::-1]
            rings.append(pd.DataFrame({"ring": len(rings), "hole": hole, "x": xy[:, 0], "y": xy[:, 1]}))
    step = 12.0 if job.quick else 6.0
    inner = domain.geometry.buffer(-1.2)
    grid = np.stack(np.meshgrid(np.arange(1, 100, step), np.arange(0, 80, step)), axis=-1).reshape(-1, 2)
    knots = grid[shapely.contains_xy(inner, grid[:, 0], grid[:, 1])]
    tables = {
        "nodes": pd.DataFrame(
            {
                "x": domain.node_points[:, 0],
                "y": domain.node_points[:, 1],
                "area": domain.node_areas,
                "count": job.counts,
            }
        ),
        "points": pd.DataFrame(job.points, columns=["x", "y"]),
        "rings": pd.concat(rings),
        "knots": pd.DataFrame(knots, columns=["x", "y"]),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stem, frame in tables.items():
            frame.to_csv(folder / f"{stem}.csv", index=False)
        call(["Rscript", str(HERE / "peers.R"), name, way], 2 * job.limit)
        found = pd.read_csv(folder / "found.csv")
        seconds, note = (folder / "note.txt").read_text(encoding="utf-8").splitlines()[:2]
    columns = {key: found[key].to_numpy(float) for key in found}
    return from_files(columns | {"note": note, "seconds": seconds})


# -- scores


WAYS: dict[str, Callable[[Job], Estimate]] = {
    "geobgp, Neumann": partial(ours, m=256, boundary="neumann"),
    "geobgp, Dirichlet": partial(ours, m=256, boundary="dirichlet"),
    "geobgp, full rank": partial(ours, m="full", boundary="neumann"),
    "geobgp, map_intensity": one_call,
    "boundary-blind box": boundary_blind,
    "kernel": partial(kernel_estimate, edge=False),
    "kernel, edge-corrected": partial(kernel_estimate, edge=True),
    "GPflow SVGP": gpflow_svgp,
    "PyMC HSGP": pymc_hsgp,
    "mgcv soap film": partial(by_r, way="soap"),
    "spatstat kernel": partial(by_r, way="kernel"),
    "spatstat heat kernel": partial(by_r, way="heat"),
}
#: Columns of numbers: heading, how to write them, and how far a value is from the best one there can be.
COLUMNS: dict[str, tuple[str, Callable[[float], float]]] = {
    "log score": ("{:.4f}", lambda v: -v),
    "RMSE": ("{:.3f}", lambda v: v),
    "coverage": ("{:.0%}", lambda v: abs(v - 0.9)),
    "seconds": ("{:.1f}", lambda v: v),
}


@dataclass
class Result:
    """Scores of one way, a row per seed, what to say of it, and its map for the first seed."""

    scores: list[list[float]] = field(default_factory=list)
    note: str = ""
    intensity: np.ndarray | None = None

    def column(self, k: int) -> np.ndarray:
        """Return one score of every seed."""
        return np.array([row[k] for row in self.scores])


def scores(found: Estimate, real: np.ndarray, held_out: np.ndarray, areas: np.ndarray) -> list[float]:
    """Return log score, RMSE and coverage."""
    floor = FLOOR * (real * areas).sum() / areas.sum()
    mean, median = np.maximum(found.mean, floor), np.maximum(found.median, floor)

    def log_score(intensity: np.ndarray) -> float:
        rate = intensity * areas
        return float((xlogy(held_out, rate) - rate).sum() / held_out.sum())

    share = areas / areas.sum()
    rmse = float(np.sqrt(share @ np.square(np.log(median) - np.log(real))))
    coverage = np.nan
    if found.interval is not None:
        coverage = float(share @ ((found.interval[0] <= real) & (real <= found.interval[1])))
    return [log_score(mean) - log_score(real), rmse, coverage]


def attempt(name: str, job: Job, result: Result, real: np.ndarray, held_out: np.ndarray) -> None:
    """Run one way on one pattern and add its scores, or say why there are none."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = WAYS[name](job)
        seconds = time.perf_counter() - begin if found.seconds is None else found.seconds
        if not (np.isfinite(found.mean).all() and np.isfinite(found.median).all()):
            raise ValueError(f"{int((~np.isfinite(found.mean)).sum())} nodes without an estimate")
    except AbsentError:
        result.note = "absent"
        return
    except subprocess.TimeoutExpired as error:
        result.note = f"not done in {error.timeout:.0f} s"
        return
    except Exception as error:  # one peer's failure must not stop the others
        result.note = f"failed: {type(error).__name__}: {error}"
        return
    result.scores.append([*scores(found, real, held_out, job.domain.node_areas), seconds])
    result.note = found.note
    if result.intensity is None:
        result.intensity = found.median
    print(f"seed {job.seed}, {name}: {np.round(result.scores[-1], 3).tolist()}; {found.note}", flush=True)


def rows_and_words(results: Mapping[str, Result], n_seeds: int) -> tuple[list[list[object]], list[str]]:
    """Return the table's rows, the best of each column in bold, and where ours is not the best."""
    means = np.full((len(results), len(COLUMNS)), np.nan)
    for i, result in enumerate(results.values()):
        if len(result.scores) == n_seeds:
            means[i] = np.mean(result.scores, axis=0)
    loss = np.column_stack([[away(v) for v in means[:, k]] for k, (_, away) in enumerate(COLUMNS.values())])
    names = list(results)
    mine = np.array([name.startswith("geobgp") for name in names])
    best = [int(np.nanargmin(column)) if np.isfinite(column).any() else -1 for column in loss.T]
    rows: list[list[object]] = []
    for i, (name, result) in enumerate(results.items()):
        cells = []
        for k, (form, _) in enumerate(COLUMNS.values()):
            values = result.column(k)
            if len(values) == 0 or np.isnan(values).all():
                cells.append("-")
                continue
            cell = f"{form.format(values.mean())} ± {form.format(values.std(ddof=min(1, len(values) - 1)))}"
            cells.append(f"**{cell}**" if best[k] == i else cell)
        some = f"{len(result.scores)} of {n_seeds} seeds; " if 0 < len(result.scores) < n_seeds else ""
        rows.append([name, *cells, some + result.note])
    words = []
    for k, (heading, (form, _)) in enumerate(COLUMNS.items()):
        if best[k] < 0:
            continue
        winner = names[best[k]]
        if mine[best[k]]:
            words.append(f"- {heading}: {winner} is the best.")
            continue
        text = f"- {heading}: ours is not the best; {winner} is ({form.format(means[best[k], k])})"
        own = np.where(mine, loss[:, k], np.nan)
        if np.isfinite(own).any():
            i = int(np.nanargmin(own))
            text += f", the best of ours is {names[i]} ({form.format(means[i, k])})"
        words.append(text + ".")
    return rows, words


def figure(job: Job, real: np.ndarray, results: Mapping[str, Result], path: Path) -> None:
    """Draw the truth, the points and every way's map of the first seed."""
    import matplotlib as mpl
    import shapely

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm
    from matplotlib.path import Path as Outline

    domain = job.domain
    land = [ring for part in shapely.get_parts(domain.geometry) for ring in (part.exterior, *part.interiors)]
    outline = Outline.make_compound_path(*(Outline(shapely.get_coordinates(r), closed=True) for r in land))
    norm = LogNorm(*np.quantile(real, (0.002, 0.998)))
    extent = [domain.grid.bounds[k] for k in (0, 2, 1, 3)]
    panels: list[tuple[str, np.ndarray | None]] = [("truth", real), (f"{len(job.points):,} points", None)]
    panels += [
        (f"{name}\nRMSE {result.scores[0][1]:.3f}", result.intensity)
        for name, result in results.items()
        if result.intensity is not None
    ]
    columns = 5
    n_rows = -(-len(panels) // columns)
    fig, axes = plt.subplots(n_rows, columns, figsize=(3.2 * columns, 2.85 * n_rows), layout="constrained")
    image = None
    for ax, (title, values) in zip(axes.flat, panels, strict=False):
        if values is None:
            ax.scatter(*job.points.T, s=1.2, color="0.2", linewidths=0)
        else:
            image = ax.imshow(domain.to_grid(values), extent=extent, norm=norm, cmap="viridis")
            image.set_clip_path(outline, transform=ax.transData)
        for ring in land:
            ax.plot(*ring.xy, color="black", lw=0.6)
        ax.set_title(title, fontsize=10)
        ax.set(aspect="equal", xlim=extent[:2], ylim=extent[2:])
        ax.axis("off")
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    fig.colorbar(image, ax=axes, shrink=0.6, pad=0.01, extend="both", label="events per km²")
    path.parent.mkdir(exist_ok=True)
    fig.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="coarse cells, few features and rounds")
    parser.add_argument("--without", nargs="*", default=[], help="leave out ways whose names contain this")
    parser.add_argument("--only", nargs="*", default=[], help="only ways whose names contain this")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each peer's optimiser")
    options = parser.parse_args()

    from geobgp import LGCP, Domain, HarmonicBasis, bin_points, simulate_points

    sys.path.insert(0, str(HERE))
    from tables import RESULTS, keep, machine, table

    land, river = coast()
    domain = Domain.from_polygons(land, water=river, cell_size=3.0 if options.quick else 1.5, crs="local")
    real = truth(domain)
    # Once before the clock runs: modules are imported where they are first needed.
    LGCP(HarmonicBasis.compute(domain, m=8, cache=False)).fit(np.ones(domain.n_nodes)).node_intensity()

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        frame = simulate_points(domain, real, rng)
        points = np.column_stack([frame.geometry.x, frame.geometry.y])
        return points, bin_points(points, domain).values.astype(float)

    def asked(name: str) -> bool:
        wanted = not options.only or any(word.lower() in name.lower() for word in options.only)
        return wanted and not any(word.lower() in name.lower() for word in options.without)

    results = {name: Result() for name in WAYS if asked(name)}
    first = None
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        points, counts = draw(rng)
        _, held_out = draw(rng)
        job = Job(domain, land, river, points, counts, seed, options.limit, options.quick)
        first = first or job
        for name, result in results.items():
            if result.note == "absent":
                continue
            attempt(name, job, result, real, held_out)
    rows, words = rows_and_words(results, options.seeds)
    text = [
        "# Ours and its peers on a simulated coast",
        "",
        machine("gpflow", "tensorflow"),
        f"{domain.n_nodes:,} nodes of {domain.cell_size:g} km in {domain.n_components} separate parts, "
        f"about {POINTS:,} points, {options.seeds} seeds (mean ± spread over them). In bold the best of each "
        "column. The log-intensity is smooth along the land, differs between the banks of the fjord and of "
        "the river, and each island has its own; it was not drawn from any of the models, but favours those "
        "that know the shore.",
        "",
        table(["way", *COLUMNS, "last seed"], rows),
        "",
        *words,
        "",
        "log score: Poisson log-likelihood of held-out counts per node under the mean intensity, per "
        "held-out point, less that of the truth (0 is perfect). RMSE: of the log-intensity (median) over the "
        "land's area. coverage: share of the land where the truth lies within the 90 % interval; the best is "
        "the nearest to 90 %. seconds: wall time from points to estimate. For geobgp that includes cutting "
        "the land into nodes and computing the features (no cache); the others get counts and areas on the "
        "same nodes, or the points. Imports and the start of an interpreter are left out; PyTensor's "
        "compiled code was in its cache, GPflow traces each time. Optimisers of GPflow and PyMC stop after "
        f"{options.limit:.0f} s. Every way learns its own hyperparameters. Estimates are at least {FLOOR:g} "
        "of the mean intensity.",
    ]
    if options.quick or options.only:  # a trial: what is kept stays
        print("\n".join(text))
        return
    keep("peers", "\n".join(text))
    if first is not None:
        figure(first, real, results, RESULTS / "peers.png")


def hsgp_elsewhere(source: str, target: str) -> None:
    """Be the subprocess of `pymc_hsgp`: arrays from one file, results into another."""
    with np.load(source) as file:
        given = {k: v if v.ndim else v.item() for k, v in file.items()}
    np.savez(target, **timed_hsgp(**given))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hsgp"]:
        hsgp_elsewhere(*sys.argv[2:4])
    else:
        main()
