"""The paper's second experiment: classification with a hard boundary, and what more features buy.

Two generated bananas, wound about each other so that few features cannot tell them apart, inside a known
outline on which the classifier must be undecided (Dirichlet: the latent function is zero there). With m the
prior itself changes, so the ELBO need not rise for ever.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import shapely
from tables import RESULTS, keep, machine, table

from geobgp import BoundaryGP, Domain, GeobgpWarning, HarmonicBasis, Matern

FEATURES = (4, 8, 16, 32, 64)


def bananas(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return n places in two bananas wound about each other, and which banana (0 or 1) each is of."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, n)
    along = rng.uniform(0, 1, n)
    angle, radius = np.pi * (2.5 * along + which), 1 - 0.85 * along
    arc = np.c_[radius * np.cos(angle), radius * np.sin(angle)]
    return arc + 0.07 * rng.standard_normal((n, 2)), which.astype(float)


def outline(coords: np.ndarray) -> shapely.Polygon:
    """Return a hard boundary around the bananas: all within 0.35 of a place, smoothed."""
    return shapely.union_all(shapely.points(coords)).buffer(0.5).buffer(-0.15).simplify(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=5)
    folds = parser.parse_args().folds
    warnings.simplefilter("ignore", GeobgpWarning)  # small m is the point here
    coords, classes = bananas()
    shape = outline(coords)
    domain = Domain.from_polygons(shape, cell_size=0.025, crs="local")
    basis = HarmonicBasis.compute(domain, m=max(FEATURES), boundary="dirichlet", cache=False)
    fold = np.random.default_rng(1).permutation(len(coords)) % folds
    rows, fields = [], {}
    for m in FEATURES:
        model = BoundaryGP(basis.truncate(m), Matern(1.5), likelihood="bernoulli")
        begin = time.perf_counter()
        posterior = model.fit(coords, classes)
        seconds = time.perf_counter() - begin
        wrong, score = 0, 0.0
        for k in range(folds):
            out = fold == k
            chance = np.clip(model.fit(coords[~out], classes[~out]).predict_y(coords[out])[0], 1e-9, 1 - 1e-9)
            wrong += int(((chance > 0.5) != (classes[out] > 0.5)).sum())
            score += np.where(classes[out] > 0.5, np.log(chance), np.log(1 - chance)).sum()
        fields[m] = posterior.predict_y(domain.node_points)[0]
        rows.append(
            [
                str(m),
                f"{posterior.elbo:.2f}",
                f"{wrong / len(coords):.2%}",
                f"{score / len(coords):.4f}",
                f"{seconds:.3f}",
            ]
        )
    text = [
        f"Banana: {len(coords)} places, {domain.n_nodes:,} nodes, Dirichlet, Matern 3/2 learned, probit",
        machine(),
        "",
        table(["m", "ELBO", f"{folds}-fold error", "log score per place", "fit s"], rows),
    ]
    keep("banana", "\n".join(text))
    figure(domain, shape, coords, classes, fields)


def figure(domain, shape, coords, classes, fields):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(fields), figsize=(3.2 * len(fields), 3.2), layout="constrained")
    extent = [domain.grid.bounds[k] for k in (0, 2, 1, 3)]
    for ax, (m, field) in zip(axes, fields.items(), strict=True):
        chance = domain.to_grid(field)
        ax.imshow(chance, extent=extent, cmap="RdBu_r", vmin=0, vmax=1)
        ax.contour(chance, [0.5], extent=extent, origin="upper", colors="k", linewidths=1)
        for value, colour in ((0, "navy"), (1, "darkred")):
            ax.scatter(*coords[classes == value].T, s=4, color=colour)
        ax.plot(*shape.exterior.xy, color="0.2", lw=1)
        ax.set(title=f"m = {m}", aspect="equal", xticks=[], yticks=[])
    fig.savefig(RESULTS / "banana.png", dpi=110)


if __name__ == "__main__":
    main()
