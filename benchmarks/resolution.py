"""Held-out scores of clustered patterns: 256 and 1,024 features, full resolution, an adaptive kernel.

Many small clusters are simulated on the sample of the Netherlands. Four fifths of the points, taken at
random, are fitted; the others are scored by the Poisson log-likelihood of their counts per node under a
quarter of the fitted mean intensity, per point, less that of an even intensity. The adaptive kernel
(Abramson's square-root rule, each point's mass kept on land) has its bandwidth chosen by five-fold
cross-validation of the same score.

    python benchmarks/resolution.py [--quick] [--repeats 3] [--clock wall|cpu]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

import argparse  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402

import numpy as np  # noqa: E402
from scipy.special import xlogy  # noqa: E402

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern  # noqa: E402

sys.path.insert(0, str(HERE))
from tables import keep, machine, table  # noqa: E402

SAMPLE = HERE.parent / "sample_data"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def simulate(domain: Domain, seed: int) -> np.ndarray:
    """Return the nodes of points: 200 clusters 1.5 km wide, 20 points each, and one in six spread evenly."""
    rng = np.random.default_rng(seed)
    share = domain.node_areas / domain.node_areas.sum()
    parents = domain.node_points[rng.choice(domain.n_nodes, 200, p=share)]
    points = np.repeat(parents, rng.poisson(20, 200), axis=0)
    points = points + 1500.0 * rng.standard_normal(points.shape)
    even = domain.node_points[rng.choice(domain.n_nodes, 800, p=share)]
    nodes = domain.locate(np.vstack([points, even]))
    return nodes[nodes >= 0]


def score(domain: Domain, intensity: np.ndarray, held_out: np.ndarray, ratio: float) -> float:
    """Return the log-likelihood per held-out point, less that of an even intensity."""
    rate = ratio * intensity * domain.node_areas
    even = domain.node_areas / domain.node_areas.sum() * rate.sum()
    return float((xlogy(held_out, rate) - xlogy(held_out, even)).sum() / held_out.sum())


class AdaptiveKernel:
    """Gaussian kernels on nodes, wider where points are few; no mass leaves the land."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def _sum(self, counts: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Return events per m² from counts at nodes, each spread with its own width."""
        used = np.flatnonzero(counts)
        points, areas = self.domain.node_points, self.domain.node_areas
        out = np.zeros(len(points))
        for start in range(0, len(used), 256):
            some = used[start : start + 256]
            gap = points[some, None, :] - points[None, :, :]
            weight = np.exp(-0.5 * np.square(gap).sum(axis=2) / np.square(widths[some])[:, None])
            weight /= (weight * areas).sum(axis=1, keepdims=True)
            out += counts[some] @ weight
        return out

    def fit(self, counts: np.ndarray, width: float) -> np.ndarray:
        """Return the estimate with a given global bandwidth."""
        pilot = self._sum(counts, np.full(len(counts), width))
        at_points = np.log(np.maximum(pilot, 1e-300))
        middle = np.average(at_points, weights=counts)
        return self._sum(counts, width * np.exp(-0.5 * (at_points - middle)))

    def best(self, nodes: np.ndarray, widths: np.ndarray, folds: int = 5) -> tuple[np.ndarray, float]:
        """Return the estimate with the bandwidth that cross-validation prefers, and that bandwidth."""
        fold = np.random.default_rng(0).integers(folds, size=len(nodes))
        n = self.domain.n_nodes
        scores = []
        for width in widths:
            parts = []
            for k in range(folds):
                kept = np.bincount(nodes[fold != k], minlength=n).astype(float)
                left = np.bincount(nodes[fold == k], minlength=n).astype(float)
                intensity = np.maximum(
                    self.fit(kept, width), 1e-6 * kept.sum() / self.domain.node_areas.sum()
                )
                parts.append(score(self.domain, intensity, left, left.sum() / kept.sum()))
            scores.append(np.mean(parts))
        width = float(widths[int(np.argmax(scores))])
        return self.fit(np.bincount(nodes, minlength=n).astype(float), width), width


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a coarse grid")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    clock = CLOCKS[options.clock]
    land, water = SAMPLE / "netherlands_land.gpkg", SAMPLE / "netherlands_water.gpkg"
    domain = Domain.from_polygons(land, water=water, cell_size=4000.0 if options.quick else 1500.0)
    unit = domain.area_unit[0]

    def by_features(m: int) -> Callable[[np.ndarray], tuple[np.ndarray, str]]:
        basis = HarmonicBasis.compute(domain, m=m)

        def run(nodes: np.ndarray) -> tuple[np.ndarray, str]:
            return mean_of(LGCP(basis, Matern(1.5)), nodes)

        return run

    def mean_of(model: LGCP, nodes: np.ndarray) -> tuple[np.ndarray, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model._fit(np.bincount(nodes, minlength=domain.n_nodes).astype(float))
        mean, variance = fit.states[0].node_moments()
        length = np.exp(fit.hyper_mean[0]) / 1000
        note = f"lengthscale {length:.2f} km, {fit.missed_share:.1%} missed"
        return np.exp(mean + variance / 2) / unit, note

    def adaptive(nodes: np.ndarray) -> tuple[np.ndarray, str]:
        intensity, width = AdaptiveKernel(domain).best(nodes, np.geomspace(1000.0, 16_000.0, 7))
        return np.maximum(
            intensity, 1e-6 * len(nodes) / domain.node_areas.sum()
        ), f"bandwidth {width / 1000:.2f} km"

    ways: dict[str, Callable[[np.ndarray], tuple[np.ndarray, str]]] = {
        "adaptive kernel": adaptive,
        "m = 256": by_features(256),
        "m = 1024": by_features(256 if options.quick else 1024),
        "full rank": lambda nodes: mean_of(LGCP(FullRank(domain)), nodes),
    }
    found: dict[str, list[tuple[float, float, str]]] = {name: [] for name in ways}
    for seed in range(options.repeats):
        nodes = simulate(domain, seed)
        train = np.random.default_rng(seed).uniform(size=len(nodes)) < 0.8
        held_out = np.bincount(nodes[~train], minlength=domain.n_nodes).astype(float)
        for name, way in ways.items():
            begin = clock()
            intensity, note = way(nodes[train])
            seconds = clock() - begin
            found[name].append((score(domain, intensity, held_out, 0.25), seconds, note))
    best = max(np.mean([s for s, _, _ in runs]) for runs in found.values())
    rows = []
    for name, runs in found.items():
        scores = [s for s, _, _ in runs]
        gap = np.mean(scores) - best
        spread = ", ".join(f"{s:.3f}" for s in scores)
        rows.append(
            [name, f"{np.mean(scores):.4f}", spread, f"{gap:+.4f}", min(t for _, t, _ in runs), runs[-1][2]]
        )
    header = ["estimate", "score", "each pattern", "to the best", "seconds", "last pattern"]
    text = [
        "# Held-out score of clustered patterns (nats per point over an even intensity)",
        "",
        machine(),
        f"{domain.n_nodes:,} nodes, {options.repeats} patterns. Clock: {options.clock}.",
        "",
        table(header, rows),
    ]
    keep("resolution", "\n".join(text))


if __name__ == "__main__":
    main()
