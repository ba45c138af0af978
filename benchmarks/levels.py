"""The effect of a level at cells of any size: a two-level raster, finer than the cells, with a known ratio.

Woods lie in patches some pixels wide on three tenths of the land, and have eight times the events of meadows; a smooth
field varies beside them. The same events are mapped on cells of one, two, four and eight pixels, with defaults; and
with the mean of levels taken on the log scale (as a number with a slope), which the mixture replaces.

    python benchmarks/levels.py [--rasters 10] [--patch 4] [--events 5000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import rasterio
import shapely
from affine import Affine
from scipy import ndimage
from tables import keep, machine, table

from geobgp import LGCP, Categorical, Domain, FullRank, HarmonicBasis, bin_points

RATIO, SIDE, WIDTHS = 8.0, 96, (1, 2, 4, 8)


def simulate(seed: int, patch: float, events: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of 1 (meadow) and 2 (wood) by pixel, and the places of events."""
    rng = np.random.default_rng(seed)
    patches, field = (
        ndimage.gaussian_filter(rng.standard_normal((SIDE, SIDE)), width, mode="wrap") for width in (patch, 14)
    )
    codes = 1 + (patches > np.quantile(patches, 0.7)).astype(np.uint8)
    rate = np.exp(0.5 * field / field.std()) * np.where(codes == 2, RATIO, 1.0)
    counts = rng.poisson(events * rate / rate.sum())
    row, col = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.ravel(), axis=1)
    return codes, np.column_stack([col + rng.random(len(col)), SIDE - row - rng.random(len(row))])


def write(path: Path, codes: np.ndarray) -> str:
    """Write codes as a raster of pixels of one unit."""
    facts = {"driver": "GTiff", "height": SIDE, "width": SIDE, "count": 1, "dtype": "uint8"}
    with rasterio.open(path, "w", **facts, transform=Affine(1, 0, 0, 0, -1, SIDE)) as out:
        out.write(codes, 1)
    return str(path)


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rasters", type=int, default=10)
    parser.add_argument("--patch", type=float, default=4.0, help="width of the patches, in pixels")
    parser.add_argument("--events", type=int, default=5000)
    told = parser.parse_args()
    n = told.rasters
    warnings.simplefilter("ignore")
    made, rows = [simulate(seed, told.patch, told.events) for seed in range(n)], []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("full resolution", "256 features"):
            found = np.empty((n, len(WIDTHS), 4))
            for k, width in enumerate(WIDTHS):
                domain = Domain.from_polygons(shapely.box(0, 0, SIDE, SIDE), cell_size=width, crs="local")
                m = min(256, domain.n_nodes // 2)
                basis = FullRank(domain) if name.startswith("full") else HarmonicBasis.compute(domain, m, cache=False)
                for seed, (codes, places) in enumerate(made):
                    path = write(Path(folder) / "veg.tif", codes)
                    counts = bin_points(places, domain)
                    row = []
                    for covariate in (Categorical(path, reference=1), f"{path}|numbers"):
                        model, begin = LGCP(basis, covariates={"veg": covariate}), time.perf_counter()
                        effect = model.fit(counts).coefficients.iloc[1]
                        row += [effect["mean"], effect["sd"], time.perf_counter() - begin]
                    found[seed, k] = row[0], row[1], row[3], row[2] / row[5]
            off = np.log(RATIO)
            agree = np.abs(found[:, :, None, 0] - found[:, None, :, 0]) / np.maximum(
                found[:, :, None, 1], found[:, None, :, 1]
            )
            for k, width in enumerate(WIDTHS):
                mean, sd, slope, slower = found[:, k].T
                ratios = np.exp(mean)
                rows.append([
                    name, str(width), f"{np.exp(mean.mean()):.2f}", f"{ratios.min():.2f} to {ratios.max():.2f}",
                    f"{np.sqrt(np.mean(((mean - off) / sd) ** 2)):.2f}", f"{np.abs((mean - off) / sd).max():.2f}",
                    f"{(np.abs(ratios / RATIO - 1) < 0.2).sum()} of {n}", f"{agree[:, k].max():.2f}",
                    f"{np.exp(slope.mean()):.2f}", f"{np.median(slower):.1f}",
                ])  # fmt: skip
    header = [
        "prior", "cell, pixels", "ratio, mean", "lowest to highest", "rms error / se", "largest", "within 20 %",
        "largest from other cells / se", "on the log scale", "time / log scale",
    ]  # fmt: skip
    text = (
        f"# Levels\n\nThe ratio of two levels, {RATIO:g} in truth, by the width of cells: {n} simulated rasters of "
        f"{SIDE} x {SIDE} pixels, patches {told.patch:g} pixels wide, about {told.events:,} events "
        f"each, the same on cells of every width."
        f"\n\n{table(header, rows)}\n\n{machine('rasterio')}"
    )
    keep("levels", text)


if __name__ == "__main__":
    main()
