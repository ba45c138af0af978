"""How long a fit takes: in seconds, in products of the features with themselves, and as n and m grow.

The reference case is the sample of the Netherlands: 4,446 (simulated) tick bites, cells of 1.5 km, 256
features, Matern 3/2, lengthscale and standard deviation learned. One `dsyrk` is the product of an n x m
matrix with its own transpose; it is timed before and after every fit, and the smaller time counts. On a
busy machine use --clock cpu with one thread.

    python benchmarks/inference.py [--quick] [--clock wall|cpu] [--full] [--gpflow]

--full adds full resolution up to 100,000 nodes, --gpflow the comparison with GPflow (ten minutes and more).
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

import argparse  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import cache  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.linalg import blas  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, bin_points  # noqa: E402

sys.path.insert(0, str(HERE))
from tables import keep, machine, table  # noqa: E402

SAMPLE = HERE.parent / "sample_data"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@cache
def domain_of(cell_size: float) -> Domain:
    land, water = SAMPLE / "netherlands_land.gpkg", SAMPLE / "netherlands_water.gpkg"
    return Domain.from_polygons(land, water=water, cell_size=cell_size)


@cache
def counts_of(cell_size: float) -> np.ndarray:
    return bin_points(SAMPLE / "tick_bites_simulated.gpkg", domain_of(cell_size)).values


def product_seconds(features: np.ndarray, clock: Callable[[], float], repeats: int = 3) -> float:
    """Return the time of one dsyrk of the features."""
    transposed = np.asfortranarray(features.T)
    times = []
    for _ in range(repeats):
        begin = clock()
        blas.dsyrk(1.0, transposed, lower=1)
        times.append(clock() - begin)
    return min(times)


def dense(cell_size: float, m: int, clock: Callable[[], float], hyper: str = "map") -> dict[str, Any]:
    """Fit with m features; return what it took."""
    basis = HarmonicBasis.compute(domain_of(cell_size), m=m)
    model, counts = LGCP(basis, Matern(1.5)), counts_of(cell_size)
    unit = product_seconds(basis.features, clock)
    times = []
    for _ in range(2):
        begin = clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model.fit(counts, hyper=hyper).fit
        times.append(clock() - begin)
    unit = min(unit, product_seconds(basis.features, clock))
    return {"n": len(counts), "m": m, "seconds": min(times), "unit": unit, "fit": fit}


def full(cell_size: float, clock: Callable[[], float]) -> dict[str, Any]:
    """Fit at full resolution; return what it took, from the domain on."""
    domain, counts = domain_of(cell_size), counts_of(cell_size)
    begin = clock()
    fit = LGCP(FullRank(domain)).fit(counts).fit
    return {"n": domain.n_nodes, "seconds": clock() - begin, "fit": fit}


def slope(xs: list[float], ys: list[float]) -> float:
    """Return the exponent of growth, log-log."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def dense_row(case: dict[str, Any]) -> list[object]:
    fit = case["fit"]
    length = np.exp(fit.hyper_mean[0]) / 1000.0
    return [
        f"{case['n']:,}",
        f"{case['m']}",
        case["seconds"],
        1000 * case["unit"],
        f"{case['seconds'] / case['unit']:.0f}",
        f"{fit.rounds}",
        f"{fit.elbo:.2f}",
        f"{length:.1f}",
        f"{fit.truncated_variance:.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--full", action="store_true", help="full resolution as well")
    parser.add_argument("--gpflow", action="store_true", help="GPflow on the same features as well")
    options = parser.parse_args()
    clock = CLOCKS[options.clock]
    threadpool_limits(1, user_api="blas")  # as fits have, so that a dsyrk is measured alike
    dense(6000.0, 64, clock)  # loads what is loaded on first use
    header = ["nodes", "m", "seconds", "dsyrk ms", "multiple", "rounds", "ELBO", "lengthscale km", "missed"]
    reference = 4000.0 if options.quick else 1500.0
    cases = [dense(reference, 256, clock)]
    mixed = dense(reference, 256, clock, "integrate")
    text = ["# Fits of the reference case", "", machine(), f"Clock: {options.clock}. One BLAS thread.", ""]
    text += [table(header, [dense_row(cases[0])]), ""]
    ratio = mixed["seconds"] / cases[0]["seconds"]
    text += [f'hyper="integrate": {mixed["seconds"]:.3g} s, {ratio:.1f} times as long as "map".', ""]
    by_m = [dense(reference, m, clock) for m in ((64, 128) if options.quick else (64, 128, 512, 1024))]
    by_m = sorted([*by_m, cases[0]], key=lambda c: c["m"])
    text += ["## As the number of features grows", "", table(header, [dense_row(c) for c in by_m]), ""]
    exponent = slope([c["m"] for c in by_m[-3:]], [c["seconds"] for c in by_m[-3:]])
    text += [f"Seconds grow like m^{exponent:.2f} over the last three.", ""]
    cells = (6000.0, 4000.0) if options.quick else (6000.0, 3000.0, 2000.0, 1500.0, 1000.0)
    by_n = [dense(cell, 128 if options.quick else 256, clock) for cell in cells]
    text += ["## As the number of nodes grows", "", table(header, [dense_row(c) for c in by_n]), ""]
    exponent = slope([c["n"] for c in by_n], [c["seconds"] for c in by_n])
    text += [f"Seconds grow like n^{exponent:.2f}.", ""]
    if options.full:
        cells = (6000.0, 3000.0) if options.quick else (3000.0, 1500.0, 1000.0, 600.0)
        full(6000.0, clock)
        found = [full(cell, clock) for cell in cells]
        rows = [
            [
                f"{c['n']:,}",
                c["seconds"],
                f"{c['fit'].rounds}",
                f"{c['fit'].elbo:.2f}",
                f"{np.exp(c['fit'].hyper_mean[0]) / 1000:.1f}",
                c["fit"].message,
            ]
            for c in found
        ]
        names = ["nodes", "seconds", "factorisations of the finest field", "ELBO", "lengthscale km", "end"]
        text += ["## Full resolution, Matern 1, with hyperparameters", "", table(names, rows), ""]
        exponent = slope([c["n"] for c in found], [c["seconds"] for c in found])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        each = 1e6 * peak / max(c["n"] for c in found)
        memory = f"Peak memory of the whole run: {peak:.1f} GB, {each:.0f} kB for each node of the largest fit."
        text += [f"Seconds grow like n^{exponent:.2f}. {memory}", ""]
    keep("inference", "\n".join(text).rstrip())
    if options.gpflow:
        subprocess.run([sys.executable, str(HERE / "gpflow.py"), "--clock", options.clock], check=True)


if __name__ == "__main__":
    main()
