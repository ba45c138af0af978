"""Events that are reported here and not there: a map with effort finds all of them, and knows how well.

The truth is a ridge and a step, which no prior of ours draws; effort runs from nearly all to a tenth, and to nothing on
a strip. Each run draws the events that get reported, fits them with the effort and without, and asks how often 90 %
intervals of the intensity hold the truth at nodes with effort and at those without, how far off the mean is, and what
the whole adds up to.

    python benchmarks/effort.py [--runs 100]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import shapely

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    domain = Domain.from_polygons(shapely.box(0, 0, 14, 14), cell_size=0.7, crs="local")
    (east, north), area = domain.node_points.T, domain.node_areas
    truth = 2.0 + 10.0 * np.exp(-(((east - north) / 3.0) ** 2)) + 4.0 * (east > 9.0)
    effort = (0.1 + 0.85 * (0.5 + 0.5 * np.sin(east / 2.0)) * north / 14.0) * (east < 12.6)
    seen = effort > 0
    bases = {
        "features": (HarmonicBasis.compute(domain, 150, cache=False), Matern(1.5)),
        "full": (FullRank(domain), Matern(1.0)),
    }
    print("| prior | effort | held, seen land | held, dark land | RMSE | total / truth | s a fit |")
    print("|---|---|---|---|---|---|---|")
    for name, (basis, kernel) in bases.items():
        for used in (effort, None):
            rows, begin = [], time.perf_counter()
            for run in range(runs):
                counts = np.random.default_rng(run).poisson(truth * area * effort)
                table = LGCP(basis, kernel, effort=used).fit(counts).node_intensity()
                held = ((table["q05"] <= truth) & (truth <= table["q95"])).to_numpy()
                off = table["mean"].to_numpy() - truth
                rows.append(
                    (
                        held[seen].mean(),
                        held[~seen].mean(),
                        np.sqrt(np.mean(off[seen] ** 2)),
                        1 + off @ area / (truth @ area),
                    )
                )
            lit, dark, rmse, total = np.mean(rows, axis=0)
            how, each = "ignored" if used is None else "used", (time.perf_counter() - begin) / runs
            shares = f"{100 * lit:.1f} % | {100 * dark:.1f} %"
            print(f"| {name} | {how} | {shares} | {rmse:.2f} | {total:.3f} | {each:.2f} |")


if __name__ == "__main__":
    main()
