"""Time and memory of the harmonic basis against n and m, beside scipy's eigsh(sigma=...) on the same matrix.

    python benchmarks/basis.py [--quick] [--without-eigsh]

Every line is measured in a process of its own, ours and eigsh one after the other (the better of two runs,
of one where that takes over half a minute); memory is the process's peak. The matrices are the Neumann and
Dirichlet operators of the Netherlands (sample_data), and 9-point matrices on made-up masks. eigsh has its own
factorisation, a shift just below the spectrum and a tolerance of 1e-9, like ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import tables  # noqa: E402

#: Seconds after which eigsh is stopped.
PATIENCE = 300.0
#: Matrix (cell size in metres, or cells of a mask), boundary, m, with eigsh?
QUICK = [
    ("netherlands", 3000, "neumann", 64, True),
    ("netherlands", 1500, "neumann", 256, True),
    ("netherlands", 1500, "dirichlet", 256, True),
]
FULL = [
    ("netherlands", 3000, "neumann", 256, True),
    ("netherlands", 1500, "neumann", 64, True),
    ("netherlands", 1500, "neumann", 256, True),
    ("netherlands", 1500, "dirichlet", 256, True),
    ("netherlands", 1500, "neumann", 512, True),
    ("netherlands", 1500, "neumann", 1024, False),
    ("netherlands", 600, "neumann", 256, False),
    ("netherlands", 600, "neumann", 512, True),
    ("netherlands", 300, "neumann", 512, False),
    ("mask", 15_000, "neumann", 256, True),
    ("mask", 15_000, "dirichlet", 256, True),
    ("mask", 100_000, "neumann", 512, False),
    ("mask", 400_000, "neumann", 512, False),
]


def matrix_of(kind: str, size: float, boundary: str):
    """Return a matrix, and where its unknowns lie."""
    import numpy as np

    if kind == "mask":
        from grids import grid_laplacian, irregular

        mask = irregular(int(size))
        return grid_laplacian(mask, boundary, shore=boundary == "neumann"), np.argwhere(mask)
    from geobgp import Domain
    from geobgp.prior.laplacian import discretise

    data = ROOT / "sample_data"
    domain = Domain.from_polygons(data / "netherlands_land.gpkg", water=data / "netherlands_water.gpkg", cell_size=size)
    made = discretise(domain, boundary=boundary)
    return made.matrix, made.cells


def measure(path: str, m: int, solver: str) -> dict:
    """Run one solver on a stored matrix; called in a process of its own."""
    import numpy as np
    import scipy.sparse as sp
    from scipy.sparse.linalg import eigsh

    from geobgp.linalg.eigen import smallest_eigenpairs

    matrix, places = sp.csr_array(sp.load_npz(path)), np.load(Path(path).with_suffix(".npy"))
    smallest_eigenpairs(matrix[:50, :50], 2)  # loads what is loaded on first use
    runs = []
    while len(runs) < 2 and sum(wall for wall, _ in runs) < 30:
        wall, cpu = time.perf_counter(), time.process_time()
        if solver == "ours":
            values, vectors = smallest_eigenpairs(matrix, m, coords=places)
        else:
            below = -1e-3 * 4 * np.pi * m / matrix.shape[0] * np.median(matrix.diagonal()) * 0.3
            values, vectors = eigsh(matrix.tocsc(), m, sigma=below, tol=1e-9)
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(runs)
    peak = 1e9 * tables.peak_memory()
    top = values.max()
    worst = 0.0
    for start in range(0, m, 64):
        block, value = vectors[:, start : start + 64], values[start : start + 64]
        residual = np.linalg.norm(matrix @ block - block * value, axis=0)
        worst = max(worst, float((residual / np.maximum(value, 1e-5 * top)).max()))
    return {"wall": wall, "cpu": cpu, "peak": peak, "residual": worst, "last": float(top)}


def in_process(path: str, m: int, solver: str, threads: int) -> dict:
    variables = os.environ | {"OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--measure", path, str(m), solver]
    limit = PATIENCE if solver == "eigsh" else None
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=limit)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three small cases, nothing written")
    parser.add_argument("--without-eigsh", action="store_true", help="ours only, nothing written")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="BLAS threads for eigsh")
    parser.add_argument("--measure", nargs=3, metavar=("MATRIX", "M", "SOLVER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        path, m, solver = options.measure
        print(json.dumps(measure(path, int(m), solver)))
        return

    import tempfile

    import numpy as np
    import scipy.sparse as sp

    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        stored: dict[tuple, tuple[str, int]] = {}
        for kind, size, boundary, m, compare in QUICK if options.quick else FULL:
            key = (kind, size, boundary)
            if key not in stored:
                matrix, places = matrix_of(*key)
                path = str(Path(folder) / f"{len(stored)}.npz")
                sp.save_npz(path, matrix, compressed=False)
                np.save(Path(path).with_suffix(".npy"), places)
                stored[key] = (path, matrix.shape[0])
            path, n = stored[key]
            ours = in_process(path, m, "ours", 1)
            name = f"{kind} {boundary}" + (f", {size:g} m" if kind != "mask" else "")
            row = [name, f"{n:,}", str(m), *cells(ours)]
            if compare and not options.without_eigsh:
                try:
                    other = in_process(path, m, "eigsh", options.threads)
                    assert abs(other["last"] / ours["last"] - 1) < 1e-7, (other["last"], ours["last"])
                    ratio = f"{other['wall'] / ours['wall']:.1f}x ({other['cpu'] / ours['cpu']:.1f}x)"
                    row += [*cells(other), ratio]
                except subprocess.TimeoutExpired:
                    row += [f"stopped after {PATIENCE:.0f}", "", "", f"over {PATIENCE / ours['wall']:.1f}x"]
            else:
                row += [""] * 4
            print(*row, sep="  ", flush=True)
            rows.append(row)
    one = ["s (cpu s)", "GB", "residual"]
    header = ["matrix", "n", "m", *one, *(f"eigsh {c}" for c in one), "times faster (cpu)"]
    text = (
        f"# Harmonic basis against scipy's eigsh\n\n{tables.machine()}; eigsh may use {options.threads} "
        "threads, ours uses one.\nSeconds on the clock, the better of two runs; memory is the peak of the "
        "process; the residual is\nthe largest of ||S v - λ v|| / λ.\n\n" + tables.table(header, rows)
    )
    if options.quick or options.without_eigsh:
        print(text)
    else:
        tables.keep("basis", text)


def cells(run: dict) -> list[str]:
    """Return time, memory and residual as text."""
    return [f"{run['wall']:.2f} ({run['cpu']:.2f})", f"{run['peak'] / 1e9:.2f}", f"{run['residual']:.0e}"]


if __name__ == "__main__":
    main()
