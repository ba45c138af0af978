"""Is the default map right on every coast? Simulated truths that are not the model's own, on three ragged coasts.

Finland with its lakes, New Zealand, and an archipelago of 2,000 islets that is made here. The truths ignore the
water, know it (distances are those on land, and parts of the land have their own levels), or are patchy along the
shore. `map_intensity` with defaults is compared with closed and open water, a Dirichlet shore, and, where `--before`
names a checkout of an earlier version, with the defaults of that version.

    python benchmarks/coasts.py [--rows FOLDER] [--before CHECKOUT] [--seeds 3] [--points 1500] [--only COAST ...]

Rows are written into the folder as they come: a run that ended early goes on from there, and what is to be run anew
is deleted there. A run of all coasts and estimates writes table and picture.

KL is the divergence of the estimated from the true point process, per point. Coverage is the share of nodes whose
90 % interval holds the true intensity: of all, within one cell of the shore, and on islands under 20 km².
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree
from tables import RESULTS, Rows, keep, machine, table

import geobgp
from geobgp import Domain, simulate_points
from geobgp.prior.laplacian import discretise
from geobgp.text import count

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SMALL_ISLAND = 20e6


def islets(n: int = 2000, seed: int = 5) -> shapely.Geometry:
    """Return an archipelago: islets of all sizes, crowded around a few larger ones, over 260 x 260 km."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(20, 240, (12, 2))
    at = centres[rng.integers(12, size=n)] + rng.normal(0, 28, (n, 2))
    radius = np.exp(rng.normal(0.3, 0.75, n))
    radius[:12], at[:12] = rng.uniform(12, 24, 12), centres
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    wobble = 1 + 0.25 * np.sin(3 * angle + rng.uniform(0, 6, (n, 1))) + 0.1 * rng.normal(size=(n, 24))
    ring = at[:, None] + (radius[:, None] * wobble)[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    land = shapely.union_all(shapely.make_valid(shapely.polygons(ring)))
    return shapely.transform(land, lambda xy: 1000 * xy + [400_000, 6_000_000])


def coasts() -> dict[str, Callable[[], Domain]]:
    """Return how each coast is made."""

    def country(name: str, cell_size: float) -> Domain:
        land, water = (DATA / f"{name}_{what}.gpkg" for what in ("land", "water"))
        return Domain.from_polygons(land, water=water, cell_size=cell_size)

    return {
        "Finland": lambda: country("finland", 9000.0),
        "New Zealand": lambda: country("new_zealand", 9000.0),
        "archipelago": lambda: Domain.from_polygons(islets(), cell_size=2500.0, crs=32635),
    }


# -- truths that are not ours ----------------------------------------------------------------------------------


def ignores_water(domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Return a log-intensity of bumps in the plane."""
    xy, size = domain.node_points, np.sqrt(domain.node_areas.sum())
    out = np.zeros(domain.n_nodes)
    for centre in xy[rng.integers(domain.n_nodes, size=25)]:
        width = size * rng.uniform(0.06, 0.2)
        out += rng.normal(0, 1.2) * np.exp(-0.5 * np.sum((xy - centre) ** 2, axis=1) / width**2)
    return out


def knows_water(domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Return a log-intensity of bumps by the distance on land, and a level for every part of the land."""
    size = np.sqrt(domain.node_areas.sum())
    graph = discretise(domain).matrix.tocoo()
    i, j = graph.coords
    apart = i != j
    i, j = i[apart], j[apart]
    length = np.linalg.norm(domain.node_points[i] - domain.node_points[j], axis=1) + 1.0
    ways = sp.csr_array((length, (i, j)), shape=graph.shape)
    sources = rng.integers(domain.n_nodes, size=40)
    far = dijkstra(ways, directed=False, indices=sources)
    out = rng.normal(0, 0.7, domain.n_components)[domain.components]
    for distance in far:
        width = size * rng.uniform(0.04, 0.15)
        out = out + rng.normal(0, 1.2) * np.exp(-0.5 * (distance / width) ** 2)
    return out


def patchy_shore(domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Return a log-intensity that is raised in patches along the shore."""
    shore = shapely.points(shapely.get_coordinates(shapely.boundary(domain.geometry)))
    tree = cKDTree(shapely.get_coordinates(shore))
    distance = tree.query(domain.node_points)[0]
    along = ignores_water(domain, rng)
    return 0.3 * along + np.exp(-distance / (1.5 * domain.cell_size)) * (1.0 + along)


TRUTHS = {"ignores water": ignores_water, "knows water": knows_water, "patchy shore": patchy_shore}


# -- estimates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """What is scored: intensities per node in events per km², the draws as rows."""

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    draws: np.ndarray
    areas: np.ndarray
    seconds: float
    permeability: float


def mapped(points: Any, domain: Domain, **options: Any) -> Estimate:
    """Return what `map_intensity` finds on the land and cells of a domain."""
    begin = time.perf_counter()
    posterior = geobgp.map_intensity(
        points, domain.geometry, cell_size=domain.cell_size, crs=domain.crs, cache=False, **options
    )
    seconds = time.perf_counter() - begin
    nodes = posterior.node_intensity((0.05, 0.95))
    return Estimate(
        np.exp(posterior.fit.states[0].node_moments()[0]),
        nodes["q05"].to_numpy(),
        nodes["q95"].to_numpy(),
        np.asarray(posterior.sample(300, 0)),
        posterior.domain.node_areas,
        seconds,
        posterior.basis.permeability,
    )


def mapped_before(points: Any, domain: Domain, checkout: Path) -> Estimate:
    """Return what `map_intensity` of another version finds, in a process of its own; see before.py."""
    with tempfile.TemporaryDirectory() as name:
        given, found = Path(name) / "given.npz", Path(name) / "found.npz"
        np.savez(
            given,
            points=np.column_stack([points.geometry.x, points.geometry.y]),
            land=np.frombuffer(shapely.to_wkb(domain.geometry), np.uint8),
            crs=domain.crs.to_wkt(),
            cell_size=domain.cell_size,
        )
        command = [sys.executable, str(HERE / "before.py"), str(checkout), str(given), str(found)]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError("before.py: " + " ".join(done.stderr.strip().splitlines()[-3:]))
        with np.load(found) as file:
            return Estimate(**{key: value if value.ndim else float(value) for key, value in file.items()})


def estimates(before: Path | None) -> dict[str, Callable[[Any, Domain], Estimate]]:
    """Return the estimates to compare."""
    ways: dict[str, Callable[[Any, Domain], Estimate]] = {
        "default": mapped,
        "closed": partial(mapped, permeability=0.0),
        "open": partial(mapped, permeability=1.0),
        "Dirichlet": partial(mapped, boundary="dirichlet"),
    }
    if before is not None:
        ways["before"] = partial(mapped_before, checkout=before)
    return ways


# -- scores ----------------------------------------------------------------------------------------------------


def scores(found: Estimate, domain: Domain, truth: np.ndarray, groups: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return KL per point, coverage by group of nodes, and of the totals of islands."""
    if len(found.areas) != domain.n_nodes or not np.allclose(found.areas, domain.node_areas, rtol=1e-6):
        raise RuntimeError("The land was cut otherwise than the truth.")
    area = domain.node_areas / domain.area_unit[0]
    held = (found.low <= truth) & (truth <= found.high)
    expected = truth * area
    kl = float(np.sum(expected * np.log(truth / found.median) - expected + found.median * area) / expected.sum())
    out: dict[str, Any] = {"KL": kl}
    out |= {name: float(held[mask].mean()) for name, mask in groups.items() if mask.any()}
    parts = sp.csr_array(
        (np.ones(domain.n_nodes), (domain.components, np.arange(domain.n_nodes))),
        shape=(domain.n_components, domain.n_nodes),
    )
    total, low, high = parts @ expected, *np.quantile(parts @ (found.draws * area).T, (0.05, 0.95), axis=1)
    islands = total > 0.05
    out["totals"] = float(((low <= total) & (total <= high))[islands].mean())
    out["finite"] = float(all(np.isfinite(x).all() for x in (found.median, found.low, found.high)))
    known = np.isfinite(found.permeability)
    return out | {"seconds": found.seconds, "rho": found.permeability if known else None}


def groups_of(domain: Domain) -> dict[str, np.ndarray]:
    """Return all nodes, those within one cell of the shore, and those on small islands."""
    whole = np.pad(domain.coverage >= 1 - 1e-9, 1)
    inner = whole.copy()
    for dr in (-1, 0, 1):
        for dc in (-1, 0, 1):
            inner &= np.roll(whole, (dr, dc), (0, 1))
    shore = ~inner[1:-1, 1:-1][domain.node_rows, domain.node_cols]
    island = np.bincount(domain.components, domain.node_areas)[domain.components] < SMALL_ISLAND
    return {"all": np.ones(domain.n_nodes, bool), "shore": shore, "islands": island}


@dataclass(frozen=True)
class Case:
    """One truth on one coast, and the points drawn from it."""

    coast: str
    kind: str
    seed: int
    domain: Domain
    truth: np.ndarray
    points: Any

    @property
    def drawn(self) -> bool:
        """Whether the picture shows it."""
        return self.kind == "ignores water" and self.seed == 0


def cases(coast: str, seeds: int, n_points: int) -> Iterator[Case]:
    """Make all cases of a coast, seed by seed."""
    domain = coasts()[coast]()
    area = domain.node_areas / domain.area_unit[0]
    for seed in range(seeds):
        for kind, make in TRUTHS.items():
            truth = np.exp(make(domain, np.random.default_rng([seed, len(kind)])))
            truth *= n_points / float(truth @ area)
            yield Case(coast, kind, seed, domain, truth, simulate_points(domain, truth, rng=seed))


def measure(case: Case, way: Callable[[Any, Domain], Estimate], groups: dict[str, np.ndarray]) -> dict[str, Any]:
    """Run one estimate on one case; the row holds its map where the picture shows it."""
    found = way(case.points, case.domain)
    row = scores(found, case.domain, case.truth, groups)
    return row | ({"map": [float(f"{x:.4g}") for x in found.median]} if case.drawn else {})


def draw(shown: list[tuple[Case, dict[str, np.ndarray]]]) -> None:
    """Draw the truth, the default and the version before on each coast."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 1 + max(len(found) for _, found in shown)
    figure, axes = plt.subplots(
        len(shown), columns, figsize=(3.5 * columns, 3.6 * len(shown)), layout="constrained", squeeze=False
    )
    for row, (case, found) in zip(axes, shown, strict=True):
        low, high = np.log(np.quantile(case.truth, (0.01, 0.99)))
        for ax, (label, values) in zip(row, {"truth": case.truth, **found}.items(), strict=False):
            image = case.domain.to_grid(np.log(values))
            ax.imshow(image, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
            ax.set_title(f"{case.coast}: {label}", fontsize=9)
        for ax in row:
            ax.set_axis_off()
    figure.savefig(RESULTS / "coasts.png", dpi=110)


MEASURES = ("KL", "all", "shore", "islands", "totals", "finite", "seconds")


def lines(found: dict[tuple[str, str, str], list[dict[str, Any]]]) -> list[list[object]]:
    """Return a line of the table for each coast, truth and estimate: means over seeds."""
    out: list[list[object]] = []
    for (coast, kind, name), runs in found.items():
        mean = {key: float(np.mean([run.get(key, np.nan) for run in runs])) for key in MEASURES}
        rho = ", ".join(f"{run['rho']:g}" for run in runs) if name == "default" else ""
        shares = [f"{100 * mean[key]:.0f} %" if np.isfinite(mean[key]) else "-" for key in MEASURES[1:-1]]
        out.append([coast, kind, name, f"{mean['KL']:.4f}", *shares, rho, f"{mean['seconds']:.1f}"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="folder in which rows are kept as they come")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version to compare with")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--only", nargs="*", choices=coasts(), default=list(coasts()), help="coasts to run")
    parser.add_argument("--estimates", nargs="*", help="estimates to run")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    ways = estimates(args.before)
    if args.estimates is not None:
        ways = {name: ways[name] for name in args.estimates}
    rows = Rows(args.rows)
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {
        (coast, kind, name): [] for coast in args.only for kind in TRUTHS for name in ways
    }
    shown = []
    for coast in args.only:
        groups: dict[str, np.ndarray] = {}
        for case in cases(coast, args.seeds, args.points):
            groups = groups or groups_of(case.domain)
            for name, way in ways.items():
                key = (coast, case.kind, case.seed, args.points, name)
                row = rows.of(partial(measure, case, way, groups), *key)
                print(*key, {k: v for k, v in row.items() if k != "map"}, flush=True)
                found[coast, case.kind, name].append(row)
            if case.drawn:
                maps = {name: found[coast, case.kind, name][0] for name in ("default", "before") if name in ways}
                shown.append((case, {name: np.array(row["map"]) for name, row in maps.items()}))
    head = ["coast", "truth", "estimate", "KL", "all", "shore", "islands", "totals", "finite", "permeability", "s"]
    text = (
        f"# Ragged coasts: KL per point, and what 90 % intervals hold\n\n{machine()}\n{count(args.seeds, 'seed')}, "
        f"{args.points:,} points each.\n\n{table(head, lines(found))}"
    )
    if args.estimates is not None or len(args.only) < len(coasts()):
        print(text)
        return
    keep("coasts", text)
    draw(shown)


if __name__ == "__main__":
    main()
