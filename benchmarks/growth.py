"""How time and memory grow with the number of nodes n and of features m, stage by stage.

The sample of the Netherlands: 4,446 simulated points, cells from 6 km to 300 m (a thousand to four hundred
thousand nodes), 64 to 1,024 features, and full resolution. Every case runs in a process of its own, with one
BLAS thread and nothing from the cache; memory is the peak of that process.

    python benchmarks/growth.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from tables import RESULTS, keep, machine, peak_memory, table

SAMPLE = Path(__file__).resolve().parent.parent / "sample_data"
STAGES = ("land", "points", "features", "fit", "raster")
#: Cell sizes in m, with FEATURES features each; at CELL there are several numbers of features.
CELLS, FEATURES = (6000, 3000, 1500, 1000, 600, 300), 256
CELL, NUMBERS = 1500, (64, 128, 256, 512, 1024)
FULL = (6000, 3000, 1500, 1000, 600)


def measure(cell_size: float, m: int) -> dict[str, float]:
    """Go the whole way in this process; m = 0 stands for full resolution."""
    from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, bin_points

    seconds, last = {}, time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[stage], last = now - last, now

    domain = Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=cell_size
    )
    lap("land")
    counts = bin_points(SAMPLE / "tick_bites_simulated.gpkg", domain)
    lap("points")
    basis = HarmonicBasis.compute(domain, m, cache=False) if m else FullRank(domain)
    lap("features")
    warnings.simplefilter("ignore")  # few features miss much, which is no matter here
    posterior = LGCP(basis, Matern(1.5) if m else None).fit(counts)
    lap("fit")
    with tempfile.TemporaryDirectory() as folder:
        posterior.to_raster(Path(folder) / "map.tif")
    lap("raster")
    return seconds | {"n": domain.n_nodes, "m": m, "GB": peak_memory(), "converged": posterior.converged}


def in_process(cell_size: float, m: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(cell_size), str(m)]
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout)
    print(found, flush=True)
    return found


def exponent(cases: list[dict[str, float]], by: str, of: str) -> float:
    """Return the slope, log-log, over all cases but the smallest."""
    some = sorted(cases, key=lambda case: case[by])[1:]
    x, y = (np.log([max(case[k], 1e-3) for case in some]) for k in (by, of))
    return float(np.polyfit(x, y, 1)[0])


def rows_of(cases: list[dict[str, float]], by: str) -> str:
    """Return the table of one series, with the exponents below."""
    rows: list[list[object]] = [
        [
            f"{c['n']:,}",
            str(c["m"]) if c["m"] else "full",
            *(f"{c[s]:.2f}" for s in STAGES),
            f"{sum(c[s] for s in STAGES):.1f}",
            f"{c['GB']:.2f}",
            "yes" if c["converged"] else "no",
        ]
        for c in cases
    ]
    slopes = [f"{exponent(cases, by, s):.2f}" for s in STAGES]
    rows.append([f"exponent of {by}", "", *slopes, "", f"{exponent(cases, by, 'GB'):.2f}", ""])
    return table(["n", "m", *(f"{s} s" for s in STAGES), "all s", "GB", "converged"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases, nothing written")
    parser.add_argument("--measure", nargs=2, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    cells, numbers, full = (6000, 3000, 2000), (64, 128, 256), (6000, 4000, 3000)
    cell = 3000
    if not options.quick:
        cells, numbers, full, cell = CELLS, NUMBERS, FULL, CELL
    by_n = [in_process(size, FEATURES) for size in cells]
    by_m = [in_process(cell, m) for m in numbers]
    whole = [in_process(size, 0) for size in full]
    text = [
        "# Growth with nodes and features",
        "",
        machine(),
        "One BLAS thread, nothing cached. Exponents are slopes, log-log, without the smallest case.",
        "",
        table_title("nodes", by_n, "n"),
        table_title("features", by_m, "m"),
        table_title("nodes at full resolution (hyperparameters included)", whole, "n"),
    ]
    if options.quick:
        print("\n".join(text))
        return
    keep("growth", "\n".join(text).rstrip())
    figure(by_n, by_m, whole)


def table_title(what: str, cases: list[dict[str, float]], by: str) -> str:
    return f"## With the number of {what}\n\n{rows_of(cases, by)}\n"


def figure(by_n, by_m, whole):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
    series = [(by_n, "n", f"nodes n (m = {FEATURES})"), (by_m, "m", f"features m (n = {by_m[0]['n']:,})")]
    series.append((whole, "n", "nodes n, full resolution"))
    for ax, (cases, by, label) in zip(axes, series, strict=True):
        for stage in STAGES:
            if stage == "features" and cases is whole:
                continue
            slope = exponent(cases, by, stage)
            x, y = [c[by] for c in cases], [max(c[stage], 1e-3) for c in cases]
            ax.loglog(x, y, "o-", ms=4, label=f"{stage}, {by}^{slope:.2f}")
        memory = f"memory in GB, {by}^{exponent(cases, by, 'GB'):.2f}"
        ax.loglog([c[by] for c in cases], [c["GB"] for c in cases], "k--", lw=1, label=memory)
        ax.set_xlabel(label)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    axes[0].set_ylabel("seconds; GB")
    fig.savefig(RESULTS / "growth.png", dpi=100)


if __name__ == "__main__":
    main()
