"""Effects of covariates on truths that are not the model's own: curves and mgcv's, groups, distances, cost.

python benchmarks/effects.py [--runs 100] [--parts curves groups distance cost] [--rows FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from tables import Rows, keep, machine, table

from geobgp import LGCP, Domain, FullRank, Group, HarmonicBasis, Matern, Posterior, Smooth

#: Log rate by a covariate between 0 and 1.
TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hump": lambda x: 1.0 * np.exp(-(((x - 0.5) / 0.15) ** 2)),
    "threshold": lambda x: 0.8 / (1.0 + np.exp(-(x - 0.6) / 0.04)),
    "sine": lambda x: 0.5 * np.sin(2.0 * np.pi * x),
    "line": lambda x: 0.8 * x,
    "none": lambda x: 0.0 * x,
}
#: How covariates lie on the land: each node for itself, or patches a seventh of the land wide with noise of their size.
LIES = ("scattered", "patches")
#: Values at which curves are judged; events of each data set.
GRID, EVENTS = np.linspace(0.02, 0.98, 97), 2500.0
#: How many data sets of each truth mgcv gets as well.
IN_R = 30


def square(cell_size: float) -> Domain:
    """Return a square of 10 x 10."""
    return Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=cell_size, crs="local")


def covariate(domain: Domain, lie: str, rng: np.random.Generator) -> np.ndarray:
    """Return values that are uniform between 0 and 1 over the land."""
    x = rng.normal(size=domain.n_nodes)
    if lie == "patches":
        centres = rng.uniform(-1, 11, (80, 2))
        away = ((domain.node_points[:, None] - centres) ** 2).sum(axis=2)
        patches = np.exp(-0.5 * away / 0.7**2) @ rng.normal(size=80)
        x += patches / patches.std()
    return (np.argsort(np.argsort(x)) + 0.5) / len(x)


def rates(domain: Domain, effect: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return expected events under an effect and a hill in space."""
    u = domain.node_points / np.ptp(domain.node_points, axis=0)
    hill = 0.6 * np.exp(-(((u - rng.uniform(0.2, 0.8, 2)) / 0.25) ** 2).sum(axis=1))
    rate = np.exp(effect + hill) * domain.node_areas
    return EVENTS * rate / rate.sum()


# -- curves ------------------------------------------------------------------------------------------------------------


def curve_sets(domain: Domain, basis: HarmonicBasis, truth: str, lie: str, runs: int, kept: Rows) -> pd.DataFrame:
    """Return a row for each data set: coverage of the band, and held-out scores of curve, line and mgcv."""
    rows: list[dict[str, Any]] = []
    todo: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    for run in range(runs):
        rng = np.random.default_rng([run, list(TRUTHS).index(truth), LIES.index(lie)])
        x = covariate(domain, lie, rng)
        mean = rates(domain, TRUTHS[truth](x), rng)
        counts, new = rng.poisson(mean).astype(float), rng.poisson(mean).astype(float)
        row = kept.of(partial(one_curve, basis, truth, x, counts, new), "curve", truth, lie, run)
        rows.append(row)
        if run < IN_R and kept.get("mgcv", truth, lie, run) is None:
            todo.append((run, x, counts, new))
    found = {run: kept.put(row, "mgcv", truth, lie, run) for run, row in in_r(domain, truth, todo).items()}
    return pd.DataFrame(
        [row | (found.get(run) or kept.get("mgcv", truth, lie, run) or {}) for run, row in enumerate(rows)]
    )


def one_curve(basis: HarmonicBasis, truth: str, x: np.ndarray, counts: np.ndarray, new: np.ndarray) -> dict[str, Any]:
    """Return what a curve and a line make of one data set."""
    begin = time.perf_counter()
    posterior = LGCP(basis, Matern(1.5), covariates={"x": Smooth(x)}).fit(counts)
    seconds = time.perf_counter() - begin
    straight = LGCP(basis, Matern(1.5), covariates={"x": x}).fit(counts)
    curve = posterior.effect_curve("x")
    at = np.array([np.interp(GRID, curve["value"], np.log(curve[q])) for q in ("q05", "q50", "q95")])
    right = TRUTHS[truth](GRID) - TRUTHS[truth](x).mean()
    inside = (at[0] <= right) & (right <= at[2])
    return {
        "inside": inside.astype(int).tolist(), "error": float(np.sqrt(np.mean((at[1] - right) ** 2))),
        "width": float(np.mean(at[2] - at[0])), "tau": float(np.exp(posterior.fit.hyper_mean[-1])),
        "curve": score(posterior, new), "line": score(straight, new), "seconds": seconds,
    }  # fmt: skip


def score(posterior: Posterior, new: np.ndarray) -> float:
    """Return the log score of new counts per event, of Poisson counts about the mean."""
    return per_event(posterior.node_intensity()["mean"].to_numpy() * posterior.domain.node_areas, new)


def per_event(mean: np.ndarray, new: np.ndarray) -> float:
    """Return the log score of counts per event, less what does not depend on the mean."""
    return float((new @ np.log(mean) - mean.sum()) / new.sum())


def in_r(domain: Domain, truth: str, todo: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> dict[int, Any]:
    """Return what mgcv makes of data sets."""
    out: dict[int, dict[str, Any]] = {}
    if not todo:
        return out
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame({"x": GRID}).to_csv(Path(folder) / "grid.csv", index=False)
        for run, x, counts, _ in todo:
            east, north = domain.node_points.T
            data = {"east": east, "north": north, "x": x, "area": domain.node_areas, "count": counts}
            pd.DataFrame(data).to_csv(Path(folder) / f"data-{run}.csv", index=False)
        command = ["Rscript", str(Path(__file__).parent / "effects.R"), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-500:])
        for run, x, _, new in todo:
            rate = pd.read_csv(Path(folder) / f"found-{run}.csv")["rate"].to_numpy()
            curve = pd.read_csv(Path(folder) / f"curve-{run}.csv")
            right = TRUTHS[truth](GRID) - TRUTHS[truth](x).mean()
            inside = np.abs(curve["mean"] - right) <= 1.645 * curve["se"]
            out[run] = {
                "mgcv": per_event(rate * domain.node_areas, new), "mgcv_inside": inside.astype(int).tolist(),
                "mgcv_error": float(np.sqrt(np.mean((curve["mean"] - right) ** 2))),
            }  # fmt: skip
    return out


def curves(runs: int, kept: Rows) -> str:
    """Return the table of curves."""
    domain = square(0.25)
    basis = HarmonicBasis.compute(domain, 64, cache=False)
    header = [
        "truth", "covariate", "held by the 90 % band", "by mgcv's", "error (rms)", "mgcv's", "sd of the curve, median",
        "line - curve, nats per event", "curve - mgcv, nats per event",
    ]  # fmt: skip
    rows: list[list[object]] = []
    for lie in LIES:
        for truth in TRUTHS:
            sets = curve_sets(domain, basis, truth, lie, runs, kept)
            rows.append(
                [
                    truth, lie, f"{100 * share(sets['inside']):.1f} %", f"{100 * share(sets['mgcv_inside']):.1f} %",
                    f"{sets['error'].mean():.3f}", f"{sets['mgcv_error'].mean():.3f}", f"{sets['tau'].median():.3f}",
                    with_error(sets["line"] - sets["curve"]), with_error(sets["curve"] - sets["mgcv"]),
                ]
            )  # fmt: skip
            print(rows[-1], flush=True)
    words = (
        f"{runs} data sets each of about {EVENTS:.0f} events on {domain.n_nodes:,} nodes of a square, with a hill of "
        f"rate in space; {basis.m} features, lengthscale and sd learned. Bands are pointwise, judged at {len(GRID)} "
        "values of the covariate; scores are of new events under the same truth, ± a standard error over data sets. "
        f"mgcv has `s(x, k = 20) + s(east, north, k = 60)` by REML, on {IN_R} of the data sets."
    )
    return f"## Curves\n\n{words}\n\n{table(header, rows)}\n"


def share(inside: pd.Series) -> float:
    """Return the share of values at which truths lie within bands."""
    return float(np.mean(np.array(inside.dropna().tolist())))


def with_error(values: pd.Series) -> str:
    """Return a mean with its standard error."""
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / np.sqrt(values.count()):.4f}"


# -- groups ------------------------------------------------------------------------------------------------------------


def one_group(basis: HarmonicBasis, levels: int, run: int) -> dict[str, Any]:
    """Return the learned standard deviation of groups of one data set, and that of the effects that were drawn."""
    rng, domain = np.random.default_rng([run, levels]), basis.domain
    group, effect = rng.integers(0, levels, domain.n_nodes), rng.normal(0.0, 0.5, levels)
    counts = rng.poisson(rates(domain, effect[group], rng)).astype(float)
    fit = LGCP(basis, Matern(1.5), covariates={"g": Group(group)}).fit(counts).fit
    middle, sd = fit.hyper_mean[-1], np.sqrt(fit.hyper_cov[-1, -1])
    return {
        "tau": float(np.exp(middle)), "low": float(np.exp(middle - 1.645 * sd)),
        "high": float(np.exp(middle + 1.645 * sd)), "drawn": float(effect.std(ddof=1)),
    }  # fmt: skip


def groups(runs: int, kept: Rows) -> str:
    """Return the table of groups, whose effects are drawn with a standard deviation of 0.5."""
    domain = square(0.25)
    basis = HarmonicBasis.compute(domain, 64, cache=False)
    rows: list[list[object]] = []
    for levels in (5, 20, 100):
        rows_of = [kept.of(partial(one_group, basis, levels, run), "group", levels, run) for run in range(runs)]
        sets = pd.DataFrame(rows_of)
        held = ((sets["low"] <= 0.5) & (sets["high"] >= 0.5)).mean()
        rows.append(
            [
                str(levels), f"{sets['tau'].mean():.3f} ± {sets['tau'].std() / np.sqrt(runs):.3f}",
                f"{sets['drawn'].mean():.3f}", f"{100 * (sets['tau'].mean() / 0.5 - 1):+.1f} %",
                f"{100 * (np.exp(np.log(sets['tau'] / sets['drawn']).mean()) - 1):+.1f} %", f"{100 * held:.0f} %",
            ]
        )  # fmt: skip
        print(rows[-1], flush=True)
    header = [
        "groups",
        "sd of the groups, mean",
        "drawn, mean",
        "bias",
        "against those drawn",
        "90 % interval holds 0.5",
    ]
    words = (
        f"{runs} data sets each, nodes dealt to groups at random, effects of an sd of 0.5, about {EVENTS:.0f} events."
    )
    return f"## Groups\n\n{words}\n\n{table(header, rows)}\n"


# -- distance ----------------------------------------------------------------------------------------------------------


def exact(points: np.ndarray, start: tuple[float, float], corner: tuple[float, float] | None, land: Any) -> np.ndarray:
    """Return the straight way where it stays on land, else the way around the corner."""
    straight = np.hypot(*(points - start).T)
    if corner is None:
        return straight
    lines = shapely.linestrings(np.stack([np.broadcast_to(start, points.shape), points], axis=1))
    bent = np.hypot(*(points - corner).T) + np.hypot(*np.subtract(start, corner))
    return np.where(shapely.covers(land.buffer(1e-9), lines), straight, bent)


def distance() -> str:
    """Return the table of distances over land, by the width of cells."""
    bend = shapely.union(shapely.box(0, 0, 1, 3), shapely.box(0, 0, 3, 1))
    wall = shapely.LineString([(1.013, -0.5), (1.013, 1.31)])
    slit = shapely.box(0, 0, 2, 2) - wall.buffer(1e-6, cap_style="flat")
    cases: dict[str, tuple[Any, Any, Any, Any, Any]] = {
        "disc, from within": (shapely.Point(0, 0).buffer(1, 256), None, (0.013, -0.021), None, None),
        "disc, from its shore": (shapely.Point(0, 0).buffer(1, 256), None, (-0.93, 0.11), None, None),
        "L": (bend, None, (0.4, 2.7), (1.0, 1.0), bend),
        "around a wall": (shapely.box(0, 0, 2, 2), [wall], (0.5, 0.4), (1.013, 1.31), slit),
    }
    rows: list[list[object]] = []
    for name, (land, barriers, start, corner, sees) in cases.items():
        row: list[object] = [name]
        for cell in (0.04, 0.02, 0.01):
            walls = None if barriers is None else shapely.multilinestrings(barriers)
            more = {} if walls is None else {"barriers": walls}
            domain = Domain.from_polygons(land, cell_size=cell, crs="local", **more)
            begin = time.perf_counter()
            found = domain.distance_to([start])
            seconds = time.perf_counter() - begin
            right = exact(domain.node_points, start, corner, sees)
            off = np.abs(found / right - 1)[right > 5 * cell]
            row.append(f"{100 * off.max():.2f} % ({100 * off.mean():.2f} %), {seconds:.1f} s")
        rows.append(row)
    words = (
        "Largest and mean error of the distance over land, of nodes farther than five cells from the place, by the "
        "width of cells."
    )
    return f"## Distance over land\n\n{words}\n\n{table(['land', '0.04', '0.02', '0.01'], rows)}\n"


# -- cost --------------------------------------------------------------------------------------------------------------


def cost() -> str:
    """Return what ten smooth effects cost at 16,000 nodes."""
    domain = Domain.from_polygons(shapely.box(0, 0, 128, 125), cell_size=1, crs="local")
    rng = np.random.default_rng(2)
    counts = rng.poisson(3.2 * rates(domain, np.zeros(domain.n_nodes), rng)).astype(float)
    values = rng.uniform(0, 1, (10, domain.n_nodes))
    rows: list[list[object]] = []
    for label, basis, kernel in (
        ("256 features", HarmonicBasis.compute(domain, 256, cache=False), Matern(1.5)),
        ("1,024 features", HarmonicBasis.compute(domain, 1024, cache=False), Matern(1.5)),
        ("full resolution", FullRank(domain), Matern(1.0)),
    ):
        works = []
        for k in (0, 10, 20):
            covariates = {f"x{i}": Smooth(x, k=k) for i, x in enumerate(values)} if k else None
            work = time.process_time()
            LGCP(basis, kernel, covariates=covariates).fit(counts)
            works.append(time.process_time() - work)
        times = [f"{work:.1f} s, {work / works[0]:.1f} times" for work in works[1:]]
        rows.append([label, f"{works[0]:.1f} s", *times])
        print(rows[-1], flush=True)
    words = (
        f"Ten curves on {domain.n_nodes:,} nodes, {counts.sum():,.0f} events: processor time of a fit, hyperparameters "
        "learned."
    )
    return f"## Cost\n\n{words}\n\n{table(['prior', 'without', 'ten curves, k = 10', 'ten curves, k = 20'], rows)}\n"


def main() -> None:
    """Print and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parts = ["curves", "groups", "distance", "cost"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--rows", help="folder that keeps the results of a run, which goes on from there")
    asked = parser.parse_args()
    kept = Rows(asked.rows)
    warnings.simplefilter("ignore")
    made: dict[str, Callable[[], str]] = {
        "curves": lambda: curves(asked.runs, kept), "groups": lambda: groups(asked.runs, kept),
        "distance": distance, "cost": cost,
    }  # fmt: skip
    text = "# Effects of covariates\n\n" + "\n".join(made[part]() for part in asked.parts)
    text += f"\n{machine()}, one thread"
    if set(asked.parts) == set(parts) and asked.runs >= 100:
        keep("effects", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
