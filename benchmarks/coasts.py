"""Is the default map right on every coast? Simulated truths that are not the model's own, on three ragged coasts.

Finland with its lakes, New Zealand, and an archipelago of 2,000 islets that is made here. The truths ignore the
water, know it (distances are those on land, and parts of the land have their own levels), or are patchy along the
shore. `map_intensity` with defaults is compared with closed and open water, a Dirichlet shore, and a stand-in for
version 0.1: natural scaling and the boundary condition with the higher bound, but held at the first 128 features of
all. Version 0.1 itself took more where these missed much, so it may have done better.

    python benchmarks/coasts.py [--seeds 3] [--points 1500] [--only COAST ...]

KL is the divergence of the estimated from the true point process, per point. Coverage is the share of nodes whose
90 % interval holds the true intensity: of all, within one cell of the shore, and on islands under 20 km².
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree
from tables import RESULTS, keep, machine, table

import geobgp
from geobgp import LGCP, Domain, HarmonicBasis, simulate_points
from geobgp.linalg.eigen import smallest_eigenpairs
from geobgp.prior.laplacian import correct_eigenvalues, discretise

DATA = Path(__file__).resolve().parent / "data"
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
    ring = at[:, None] + (radius[:, None] * wobble)[..., None] * np.stack(
        [np.cos(angle), np.sin(angle)], axis=-1
    )
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


def natural_prior(points: object, domain: Domain) -> geobgp.Posterior:
    """Return a stand-in for version 0.1: natural scaling, 128 features, the condition with the higher bound."""
    counts = geobgp.bin_points(points, domain)
    fits = []
    for boundary in ("neumann", "dirichlet"):
        made = discretise(domain, boundary=boundary)
        values, vectors = smallest_eigenpairs(made.matrix, 128)
        vectors = vectors / np.sqrt(made.mass)[:, None]
        basis = HarmonicBasis.from_vectors(made, correct_eigenvalues(values, domain.cell_size), vectors)
        fits.append(LGCP(basis, scaling="natural").fit(counts))
    return max(fits, key=lambda fit: fit.elbo)


def estimates(
    land: object, cell_size: float, crs: object
) -> dict[str, Callable[[object, Domain], geobgp.Posterior]]:
    """Return the estimates to compare; `land` is the domain's own geometry."""

    def mapped(**options: object) -> Callable[[object, Domain], geobgp.Posterior]:
        return lambda points, domain: geobgp.map_intensity(
            points, land, cell_size=cell_size, crs=crs, cache=False, **options
        )

    return {
        "default": mapped(),
        "closed": mapped(permeability=0.0),
        "open": mapped(permeability=1.0),
        "Dirichlet": mapped(boundary="dirichlet"),
        "natural, m = 128": natural_prior,
    }


# -- scores ----------------------------------------------------------------------------------------------------


def scores(posterior: geobgp.Posterior, truth: np.ndarray, groups: dict[str, np.ndarray]) -> dict[str, float]:
    """Return KL per point, coverage by group of nodes, and of the totals of islands."""
    domain = posterior.domain
    area = domain.node_areas / domain.area_unit[0]
    found = posterior.node_intensity((0.05, 0.95))
    mean = np.exp(posterior.fit.states[0].node_moments()[0])
    held = (found["q05"] <= truth) & (truth <= found["q95"])
    expected = truth * area
    kl = float(np.sum(expected * np.log(truth / mean) - expected + mean * area) / expected.sum())
    out = {"KL": kl} | {name: float(held[mask].mean()) for name, mask in groups.items() if mask.any()}
    draws = posterior.sample(300, 0) * area
    parts = sp.csr_array(
        (np.ones(domain.n_nodes), (domain.components, np.arange(domain.n_nodes))),
        shape=(domain.n_components, domain.n_nodes),
    )
    total, low, high = parts @ expected, *np.quantile((parts @ draws.T), (0.05, 0.95), axis=1)
    islands = total > 0.05
    out["totals"] = float(((low <= total) & (total <= high))[islands].mean())
    out["finite"] = float(np.isfinite(found.to_numpy()).all())
    return out


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


def draw(kept: dict[str, tuple[Domain, np.ndarray, dict[str, np.ndarray]]]) -> None:
    """Draw the truth, the default and the natural prior with 128 features on each coast."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(kept), 3, figsize=(10.5, 3.6 * len(kept)), layout="constrained", squeeze=False
    )
    for row, (name, (domain, truth, found)) in zip(axes, kept.items(), strict=True):
        low, high = np.log(np.quantile(truth, (0.01, 0.99)))
        for ax, (label, values) in zip(row, {"truth": truth, **found}.items(), strict=True):
            ax.imshow(
                domain.to_grid(np.log(values)), vmin=low, vmax=high, cmap="viridis", interpolation="nearest"
            )
            ax.set_title(f"{name}: {label}", fontsize=9)
            ax.set_axis_off()
    figure.savefig(RESULTS / "coasts.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--only", nargs="*", default=list(coasts()))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("KL", "all", "shore", "islands", "totals", "finite")
    rows, pictures = [], {}
    for coast in args.only:
        domain = coasts()[coast]()
        groups = groups_of(domain)
        area = domain.node_areas / domain.area_unit[0]
        ways = estimates(domain.geometry, domain.cell_size, domain.crs)
        for kind, make in TRUTHS.items():
            found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for seed in range(args.seeds):
                truth = np.exp(make(domain, np.random.default_rng([seed, len(kind)])))
                truth *= args.points / float(truth @ area)
                points = simulate_points(domain, truth, seed=seed)
                drawn = {}
                for name, way in ways.items():
                    begin = time.perf_counter()
                    posterior = way(points, domain)
                    seconds = time.perf_counter() - begin
                    if posterior.domain.n_nodes != domain.n_nodes:
                        raise RuntimeError("The land was cut otherwise than the truth.")
                    one = scores(posterior, truth, groups) | {"seconds": seconds}
                    one["rho"] = posterior.basis.permeability
                    found[name].append(one)
                    drawn[name] = np.exp(posterior.fit.states[0].node_moments()[0])
                if kind == "ignores water" and seed == 0:
                    pictures[coast] = (domain, truth, {k: drawn[k] for k in ("default", "natural, m = 128")})
            for name, runs in found.items():
                mean = {
                    key: float(np.mean([run.get(key, np.nan) for run in runs])) for key in (*names, "seconds")
                }
                rho = ", ".join(f"{run['rho']:g}" for run in runs)
                rows.append(
                    [coast, kind, name, f"{mean['KL']:.4f}"]
                    + [f"{100 * mean[key]:.0f} %" if np.isfinite(mean[key]) else "-" for key in names[1:]]
                    + [rho if name == "default" else "", f"{mean['seconds']:.1f}"]
                )
                print(rows[-1], flush=True)
    draw(pictures)
    head = [
        "coast",
        "truth",
        "estimate",
        "KL",
        "all",
        "shore",
        "islands",
        "totals",
        "finite",
        "permeability",
        "s",
    ]
    keep(
        "coasts",
        f"# Ragged coasts: KL per point, and what 90 % intervals hold\n\n{machine()}\n{args.seeds} seeds, "
        f"{args.points:,} points each.\n\n{table(head, rows)}",
    )


if __name__ == "__main__":
    main()
