"""Effects of covariates on truths that are not the model's own: coverage of curves, τ of groups, cost, distances.

Run ``python benchmarks/effects.py`` (some minutes); a number after it is how many data sets each truth gets.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
import shapely

from geobgp import LGCP, Domain, FullRank, Group, HarmonicBasis, Matern, Smooth

#: Log rate by a covariate between 0 and 1.
TRUTHS = {
    "hump": lambda x: 1.0 * np.exp(-(((x - 0.5) / 0.15) ** 2)),
    "threshold": lambda x: 0.8 / (1.0 + np.exp(-(x - 0.6) / 0.04)),
    "sine": lambda x: 0.5 * np.sin(2.0 * np.pi * x),
    "line": lambda x: 0.8 * x,
    "none": lambda x: 0.0 * x,
}


def data(domain: Domain, effect: np.ndarray, rng: np.random.Generator, total: float = 2500.0) -> np.ndarray:
    """Return counts under an effect and a hill in space."""
    u = domain.node_points / np.ptp(domain.node_points, axis=0)
    hill = 0.6 * np.exp(-(((u - rng.uniform(0.2, 0.8, 2)) / 0.25) ** 2).sum(axis=1))
    rate = np.exp(effect + hill) * domain.node_areas
    return rng.poisson(total * rate / rate.sum()).astype(float)


def curves(domain: Domain, n: int) -> None:
    """Print where the 90 % band holds the truth, as a share of values, and what a curve costs where it is a line."""
    basis, rng = HarmonicBasis.compute(domain, 48, cache=False), np.random.default_rng(0)
    for name, truth in TRUTHS.items():
        inside, tau, cost = [], [], []
        for _ in range(n):
            x = rng.uniform(0.0, 1.0, domain.n_nodes)
            counts = data(domain, truth(x), rng)
            posterior = LGCP(basis, Matern(1.5), covariates={"x": Smooth(x)}).fit(counts)
            curve = posterior.effect_curve("x").query("0.02 < value < 0.98")
            right = truth(curve["value"]) - truth(x).mean()
            inside.append(np.mean((np.log(curve["q05"]) <= right) & (right <= np.log(curve["q95"]))))
            tau.append(np.exp(posterior.fit.hyper_mean[-1]))
            if name == "line":  # new events at the same land
                straight = LGCP(basis, Matern(1.5), covariates={"x": x}).fit(counts)
                new = data(domain, truth(x), rng)
                logs = [np.log(p.node_intensity()["mean"].to_numpy()) for p in (straight, posterior)]
                cost.append(float(new @ (logs[0] - logs[1])) / new.sum())
        more = f"; costs {np.mean(cost):.4f} nats per held-out event against a line" if cost else ""
        print(f"{name:10s} covered {np.mean(inside):.3f}, tau {np.median(tau):.3f}{more}", flush=True)


def groups(domain: Domain, n: int) -> None:
    """Print the learned standard deviation of groups, whose truth is 0.5 (of the groups that were drawn)."""
    basis, rng = HarmonicBasis.compute(domain, 32, cache=False), np.random.default_rng(1)
    for levels in (5, 20, 100):
        ratio = []
        for _ in range(n):
            group, effect = rng.integers(0, levels, domain.n_nodes), rng.normal(0.0, 0.5, levels)
            counts = data(domain, effect[group], rng)
            kernel = Matern(1.5, lengthscale=5.0, sd=0.3)
            posterior = LGCP(basis, kernel, covariates={"g": Group(group)}).fit(counts)
            ratio.append(float(np.exp(posterior.fit.hyper_mean[-1])) / float(effect.std(ddof=1)))
        print(f"{levels:3d} groups: tau / truth {np.mean(ratio):.3f} (median {np.median(ratio):.3f})", flush=True)


def cost() -> None:
    """Print what ten smooth effects cost at 16,000 nodes."""
    domain = Domain.from_polygons(shapely.box(0, 0, 128, 125), cell_size=1, crs="local")
    rng = np.random.default_rng(2)
    counts = data(domain, np.zeros(domain.n_nodes), rng, 8000.0)
    covariates = {f"x{k}": Smooth(rng.uniform(0, 1, domain.n_nodes)) for k in range(10)}
    for label, basis, kernel in (
        ("features", HarmonicBasis.compute(domain, 256, cache=False), Matern(1.5)),
        ("full resolution", FullRank(domain), Matern(1.0)),
    ):
        seconds = []
        for given in (None, covariates):
            start = time.perf_counter()
            LGCP(basis, kernel, covariates=given).fit(counts)
            seconds.append(time.perf_counter() - start)
        times = seconds[1] / seconds[0]
        print(f"{label}: {seconds[0]:.1f} s without, {seconds[1]:.1f} s with ten curves, {times:.1f} times", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    land = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=0.25, crs="local")
    curves(land, n)
    groups(land, n)
    cost()
