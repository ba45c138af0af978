"""The paper's first experiment: regression on a star whose values vanish at the boundary.

Ten simulated data sets, n = 100, Matern 3/2 with sd 1 and lengthscale 0.1 known, and noise of 0.1, which can
be read as a standard deviation or as a variance: both are shown. The reference is the full GP with 73
noise-free observations of zero on the boundary; the figure is the mean absolute difference of the predictive
mean from the reference's, over the star.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import scipy.linalg
import shapely
from tables import RESULTS, keep, machine, table

from geobgp import BoundaryGP, Domain, GeobgpWarning, HarmonicBasis, Matern

FEATURES = (4, 8, 16, 32, 64, 100)
PAPER = {
    "paper, its method": (0.344, 0.253, 0.154, 0.087, 0.075, 0.060),
    "paper, FITC": (0.507, 0.506, 0.500, 0.447, 0.289, 0.120),
    "paper, VFF": (0.503, 0.298, 0.172, 0.123, 0.138, np.nan),
}
LENGTHSCALE, N = 0.1, 100
#: The noise of 0.1, read as a standard deviation and as a variance.
NOISES = {"sd 0.1": 0.1, "variance 0.1": 0.1**0.5}


def star() -> shapely.Polygon:
    """Return the five-pointed star, one unit wide."""
    angle = np.arange(10) * np.pi / 5
    radius = np.where(np.arange(10) % 2 == 0, 1.0, np.sin(np.pi / 10) / np.cos(np.pi / 5))
    outline = np.c_[radius * np.sin(angle), radius * np.cos(angle)]
    return shapely.Polygon(outline / np.ptp(outline[:, 0]))


def matern32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=2) / LENGTHSCALE
    return (1 + r) * np.exp(-r)


def inside(shape: shapely.Polygon, n: int, rng: np.random.Generator) -> np.ndarray:
    west, south, east, north = shape.bounds
    points = rng.uniform((west, south), (east, north), (20 * n, 2))
    return points[shapely.contains_xy(shape, points[:, 0], points[:, 1])][:n]


def data_set(shape, shore, rng, noise):
    """Return locations, noisy values, and a function that vanishes at the shore behind them."""
    coords = inside(shape, N, rng)
    root = scipy.linalg.cho_factor(matern32(shore, shore) + 1e-9 * np.eye(len(shore)), lower=True)
    cross = matern32(shore, coords)
    covariance = matern32(coords, coords) - cross.T @ scipy.linalg.cho_solve(root, cross)
    f = np.linalg.cholesky(covariance + 1e-9 * np.eye(N)) @ rng.standard_normal(N)
    return coords, f + noise * rng.standard_normal(N)


def full_gp(coords, values, shore, places, noise):
    at = np.vstack([coords, shore])
    noise = np.r_[np.full(len(coords), noise**2), np.full(len(shore), 1e-9)]
    root = scipy.linalg.cho_factor(matern32(at, at) + np.diag(noise), lower=True)
    return matern32(places, at) @ scipy.linalg.cho_solve(root, np.r_[values, np.zeros(len(shore))])


def box_fourier(coords, values, places, m, shape, noise):
    """Sines on a box around the star, weighted by the spectral density: ours without the boundary."""
    west, south, east, north = shape.buffer(0.1 * np.ptp([shape.bounds[0], shape.bounds[2]])).bounds
    kx, ky = (k.ravel() for k in np.meshgrid(np.arange(1, 40), np.arange(1, 40)))
    omega = np.hypot(np.pi * kx / (east - west), np.pi * ky / (north - south))
    first = np.argsort(omega, kind="stable")[:m]

    def features(xy):
        x, y = (xy[:, :1] - west) / (east - west), (xy[:, 1:] - south) / (north - south)
        norm = 2 / np.sqrt((east - west) * (north - south))
        return norm * np.sin(np.pi * kx[first] * x) * np.sin(np.pi * ky[first] * y)

    scale = np.sqrt(Matern(1.5, lengthscale=LENGTHSCALE, sd=1.0).spectral_density(omega[first]))
    phi = features(coords) * scale
    system = phi.T @ phi + noise**2 * np.eye(m)
    return features(places) * scale @ np.linalg.solve(system, phi.T @ values)


def fitc(coords, values, shore, places, m, rng, noise):
    import gpflow

    at = np.vstack([coords, shore])
    y = np.r_[values, np.zeros(len(shore))][:, None]
    kernel = gpflow.kernels.Matern32(lengthscales=LENGTHSCALE, variance=1.0)
    chosen = at[rng.permutation(len(at))[:m]].copy()
    model = gpflow.models.GPRFITC((at, y), kernel, chosen, noise_variance=noise**2)
    return model.predict_f(places)[0].numpy().ravel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--no-fitc", action="store_true", help="leave GPflow's FITC out")
    options = parser.parse_args()
    shape = star()
    ring = shapely.get_exterior_ring(shape)
    shore = shapely.get_coordinates(shapely.line_interpolate_point(ring, np.arange(73) / 73, normalized=True))
    places = inside(shape, 1500, np.random.default_rng(99))
    begin = time.perf_counter()
    domain = Domain.from_polygons(shape, cell_size=1 / 100, crs="local")
    basis = HarmonicBasis.compute(domain, m=max(FEATURES), boundary="dirichlet", cache=False)
    set_up = time.perf_counter() - begin
    kernel = Matern(1.5, lengthscale=LENGTHSCALE, sd=1.0)
    names = ["geobgp", "box Fourier", *([] if options.no_fitc else ["FITC (GPflow)"])]
    warnings.simplefilter("ignore", GeobgpWarning)  # small m is the point here
    errors = {(name, label): np.zeros((options.sets, len(FEATURES))) for label in NOISES for name in names}
    for seed in range(options.sets):
        for label, noise in NOISES.items():
            rng = np.random.default_rng(seed)
            coords, values = data_set(shape, shore, rng, noise)
            reference = full_gp(coords, values, shore, places, noise)
            for k, m in enumerate(FEATURES):
                model = BoundaryGP(basis.truncate(m), kernel, noise=noise)
                found = {
                    "geobgp": model.fit(coords, values).predict(places)[0],
                    "box Fourier": box_fourier(coords, values, places, m, shape, noise),
                }
                if not options.no_fitc:
                    found["FITC (GPflow)"] = fitc(coords, values, shore, places, m, rng, noise)
                for name, mean in found.items():
                    errors[name, label][seed, k] = np.abs(mean - reference).mean()
    rng = np.random.default_rng(1)
    many, y = inside(shape, 10_000, rng), rng.standard_normal(10_000)
    model = BoundaryGP(basis, kernel, noise=0.1)
    model.fit(many, y)
    begin = time.perf_counter()
    model.fit(many, y)
    likelihood = time.perf_counter() - begin
    rows = [
        [f"{name}, noise {label}", *(f"{e.mean():.3f} ± {e.std():.3f}" for e in error.T)]
        for (name, label), error in errors.items()
    ]
    rows += [[name, *(f"{v:.3f}" if np.isfinite(v) else "" for v in values)] for name, values in PAPER.items()]
    text = [
        "Star: mean absolute error of the predictive mean against the full GP with 73 boundary observations",
        f"({options.sets} data sets, mean ± spread; {machine('gpflow')})",
        "",
        table(["m", *map(str, FEATURES)], rows),
        "",
        f"set-up (domain of {domain.n_nodes:,} nodes and {basis.m} features): {set_up:.2f} s (paper: 4.9 s)",
        f"whole fit, marginal likelihood included, at n = 10,000, m = {basis.m}: {likelihood:.3f} s "
        "(paper, one evaluation: 0.23 s)",
    ]
    keep("star", "\n".join(text))
    figure(domain, shape, shore, basis, kernel, errors)


def figure(domain, shape, shore, basis, kernel, errors):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    noise = NOISES["sd 0.1"]
    coords, values = data_set(shape, shore, np.random.default_rng(0), noise)
    places = domain.node_points
    fields = {
        "data": None,
        "full GP, 73 boundary observations": full_gp(coords, values, shore, places, noise),
        "geobgp, m = 100": BoundaryGP(basis, kernel, noise=noise).fit(coords, values).predict(places)[0],
    }
    fig, axes = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    extent = [domain.grid.bounds[k] for k in (0, 2, 1, 3)]
    for ax, (title, field) in zip(axes, fields.items(), strict=False):
        if field is None:
            ax.scatter(*coords.T, c=values, cmap="RdBu_r", vmin=-2.5, vmax=2.5, s=14, edgecolors="0.4", linewidths=0.4)
        else:
            ax.imshow(domain.to_grid(field), extent=extent, cmap="RdBu_r", vmin=-2.5, vmax=2.5)
        ax.plot(*shape.exterior.xy, color="0.2", lw=1)
        ax.set(title=title, aspect="equal", xticks=[], yticks=[])
    for (name, label), error in errors.items():
        if label != "sd 0.1":
            continue
        axes[3].errorbar(FEATURES, error.mean(axis=0), error.std(axis=0), marker="o", ms=4, capsize=2, label=name)
    axes[3].plot(FEATURES, PAPER["paper, its method"], "k--", lw=1, label="paper")
    axes[3].set(xscale="log", xlabel="m", ylabel="mean absolute error", title="against the full GP")
    axes[3].set_xticks(FEATURES, [str(m) for m in FEATURES])
    axes[3].minorticks_off()
    axes[3].legend(frameon=False, fontsize=8)
    fig.savefig(RESULTS / "star.png", dpi=110)


if __name__ == "__main__":
    main()
