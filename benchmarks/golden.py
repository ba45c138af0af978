"""Golden runs: every command on small data, its numbers and files kept, and compared with those of another version.

    python benchmarks/golden.py keep FILE       # run all cases and keep what they gave
    python benchmarks/golden.py compare FILE    # run them again; say what differs, and fail if anything does
    python benchmarks/golden.py compare FILE --only areas time

Kept are the names of the files that are written, statistics of every raster, the numbers of summary.json and of every
table. Times, versions and dates are left out. Numbers may differ by a tolerance, for a refactoring may add up in
another order; the list of files may not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "sample_data"
#: Largest relative difference of a number that is taken for the same.
TOLERANCE = 1e-3
#: Parts of the names of facts that differ from run to run.
VOLATILE = ("second", "created", "version", "date", "sha", "hash", "bytes", "memory", "took", "history")

NETHERLANDS = ["--land", "netherlands_land.gpkg", "--water", "netherlands_water.gpkg", "--cell-size", "8000"]
COUNTIES = "north_carolina_sids.gpkg"
#: Each command of the shell, in the folder of the sample data, without its output.
CASES = {
    "demo": ["demo"],
    "points": ["map", "tick_bites_simulated.gpkg", *NETHERLANDS, "--threshold", "0.3", "--regions",
               "netherlands_provinces.gpkg", "--regions-by", "name"],
    "features": ["map", "tick_bites_simulated.gpkg", *NETHERLANDS, "--features", "64", "--permeability", "0",
                 "--hyper", "integrate"],
    "population": ["map", "disease_cases_simulated.gpkg", *NETHERLANDS, "--exposure", "population_netherlands.tif",
                   "--units", "per 100,000", "--covariate", "green=covariate_green_space.tif",
                   "--likelihood", "negative-binomial", "--features", "64", "--permeability", "0"],
    "effort": ["map", "tick_bites_simulated.gpkg", *NETHERLANDS, "--effort", "covariate_green_space.tif",
               "--features", "64", "--permeability", "0"],
    "protected": ["map", "tick_bites_simulated.gpkg", *NETHERLANDS, "--min-count", "5", "--features", "64",
                  "--permeability", "0", "--regions", "netherlands_provinces.gpkg", "--regions-by", "name"],
    "areas": ["map", "--areas", COUNTIES, "--count", "sids_1974", "--land", COUNTIES, "--exposure", COUNTIES,
              "--exposure-column", "births_1974", "--cell-size", "15000", "--units", "per 1,000"],
    "time": ["map", "burkitt_west_nile_points.csv", "--land", "burkitt_west_nile_land.gpkg", "--crs", "local",
             "--easting", "easting_km", "--northing", "northing_km", "--time", "date", "--every", "year",
             "--forecast", "2", "--cell-size", "10"],
    "risk": ["risk", "disease_cases_simulated.gpkg", "places_netherlands_points.csv", *NETHERLANDS,
             "--longitude", "x", "--latitude", "y"],
    "strata": ["strata", "usgs_california_2018_points.csv", "--land", "california_land.gpkg", "--longitude", "x",
               "--latitude", "y", "--by", "type", "--cell-size", "30000", "--features", "64"],
    "tiles": ["tiles", "places_netherlands_points.csv", "--longitude", "x", "--latitude", "y", "--land",
              "netherlands_land.gpkg", "--cell-size", "2500", "--tile-nodes", "3000"],
}  # fmt: skip


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run one case; return its files and numbers."""
    out = folder / name
    source = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "geobgp.cli.app", *CASES[name], "-o", str(out)],
        cwd=SAMPLE, env={**os.environ, **quiet}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        return {"failed": done.stderr[-2000:]}
    files = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file() and ".zarr/" not in str(p))
    numbers: dict[str, float | str] = {}
    for file in files:
        numbers |= {f"{file} {key}": value for key, value in _numbers(out / file)}
    print(f"{name}: {len(files)} files, {len(numbers):,} numbers, {time.perf_counter() - began:.1f} s", flush=True)
    return {"files": files, "numbers": numbers}


def _numbers(path: Path) -> Iterator[tuple[str, float | str]]:
    """Yield what is to stay the same of one file."""
    import numpy as np
    import pandas as pd
    import rasterio

    if path.suffix == ".tif":
        with rasterio.open(path) as raster:
            for band in raster.indexes:
                values = raster.read(band, masked=True).compressed().astype(float)
                label = f"{band} {raster.descriptions[band - 1]}"
                yield f"{label} cells", float(len(values))
                for q in (0.0, 0.1, 0.5, 0.9, 1.0) if len(values) else ():
                    yield f"{label} {q:g}", float(np.quantile(values, q))
    elif path.suffix == ".json":
        yield from _flat(json.loads(path.read_text("utf-8")), "")
    elif path.suffix == ".csv":
        table = pd.read_csv(path)
        for column in table.columns:
            if pd.api.types.is_numeric_dtype(table[column]):
                yield f"{column} sum", float(table[column].sum())
            else:
                yield f"{column} values", float(table[column].nunique())


def _flat(value: Any, key: str) -> Iterator[tuple[str, float | str]]:
    """Yield the numbers and words of nested facts, but those that differ from run to run."""
    if any(part in key.lower() for part in VOLATILE):
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from _flat(inner, f"{key}[{k}]")
    elif isinstance(value, bool) or value is None:
        yield key, str(value)
    elif isinstance(value, int | float):
        yield key, float(value)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield in what two runs of a case differ."""
    if "failed" in before or "failed" in after:
        yield f"failed: {after.get('failed', before.get('failed'))}"
        return
    for label, here, there in (("lost", before, after), ("new", after, before)):
        for file in sorted(set(here["files"]) - set(there["files"])):
            yield f"{label} file: {file}"
        for key in sorted(set(here["numbers"]) - set(there["numbers"])):
            yield f"{label} number: {key}"
    for key in sorted(set(before["numbers"]) & set(after["numbers"])):
        one, other = before["numbers"][key], after["numbers"][key]
        if isinstance(one, str) or isinstance(other, str):
            same = one == other
        else:
            both_nan = math.isnan(one) and math.isnan(other)
            same = both_nan or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
        if not same:
            yield f"{key}: {one} -> {other}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("keep", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(given.only, pool.map(lambda name: run(name, Path(folder)), given.only), strict=True))
    if given.action == "keep":
        given.file.write_text(json.dumps(results, indent=1, sort_keys=True), "utf-8")
        failed = [name for name, result in results.items() if "failed" in result]
        for name in failed:
            print(f"{name} failed: {results[name]['failed']}")
        return int(bool(failed))
    before = json.loads(given.file.read_text("utf-8"))
    different = 0
    for name, result in results.items():
        for line in differences(before[name], result):
            print(f"{name}: {line}")
            different += 1
    print(f"{different} differences" if different else "no difference")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
