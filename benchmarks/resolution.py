"""Held-out scores of clustered patterns: `map_intensity` with defaults against kernels, splines and soap films.

Seven patterns (see patterns.py), simulated and real. Of each, a quarter of the points is held out at random, five
times over; every estimate sees the others. Its score is the mean, over the held-out points, of the log of its
density there, normalised to one over the land, less that of an even density: nats per point, the same for all
whatever their scale. A density is at least a thousandth of an even one, so that no estimate is lost by one point.

    python benchmarks/resolution.py --rows FOLDER [--thinnings 5] [--only ESTIMATE ...] [--patterns NAME ...]
        [--clock wall|cpu] [--quick]

Rows are written into the folder as they come: a run that ended early goes on from there, and what is to be run anew
is deleted there. A run of all patterns, the default among the estimates, writes table and picture. spatstat and mgcv
take part where R has them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from patterns import MAKERS, NODES, Pattern, pattern
from scipy.special import xlogy
from tables import RESULTS, Rows, keep, machine, table

from geobgp import Domain, map_intensity
from geobgp.land.pieces import cover, ring_segments, split_at_grid_lines
from geobgp.text import count

HERE = Path(__file__).resolve().parent
#: Densities are raised to this share of an even one.
FLOOR = 1e-3
#: Seconds that one call of R may take.
LIMIT = 900.0
#: The finest pixels that spatstat gets: as many to a cell's side, but no more than these along a side of the map.
FINER, MOST_PIXELS = 2, 640

Found = tuple[np.ndarray, float, "Spent", str]
Way = Callable[[Pattern, np.ndarray, np.ndarray], Found]


@dataclass(frozen=True)
class Spent:
    """Seconds by the wall and of the processor."""

    wall: float
    cpu: float

    @classmethod
    def since(cls, start: Spent) -> Spent:
        """Return what was spent since `start`."""
        now = cls.now()
        return cls(now.wall - start.wall, now.cpu - start.cpu)

    @classmethod
    def now(cls) -> Spent:
        """Return what the clocks show."""
        return cls(time.perf_counter(), time.process_time())


class AbsentError(Exception):
    """R, or one of its packages, is not installed here."""


# -- ours: each way returns the intensity at places, its integral, seconds, and a note ----------------------------


def ours(**options: Any) -> Way:
    """Return `map_intensity` with some options."""

    def run(which: Pattern, points: np.ndarray, places: np.ndarray) -> Found:
        size = {} if "m" not in options else {"cell_size": which.domain.cell_size}
        crs = "local" if which.domain.crs is None else which.domain.crs
        begin = Spent.now()
        posterior = map_intensity(points, which.land, crs=crs, cache=False, **size, **options)
        spent = Spent.since(begin)
        domain = posterior.domain
        mass = float(posterior.node_intensity(())["mean"] @ domain.node_areas) / domain.area_unit[0]
        features = posterior.basis_info["m"]
        note = (
            f"{domain.n_nodes:,} nodes, m = {features}, lengthscale {posterior.lengthscale:.3g}, "
            f"sd {posterior.sd:.2f}{'' if posterior.converged else ', NOT converged'}"
        )
        # The true areas of nodes and those on the plane of the map differ by its scale, which is even to 0.1 %.
        values = posterior.intensity_at(places, ())["mean"].to_numpy() / domain.area_unit[0]
        return values * domain.node_areas.sum() / domain.geometry.area, mass, spent, note

    return run


# -- a kernel on the land ---------------------------------------------------------------------------------------


class AdaptiveKernel:
    """Gaussian kernels on nodes, wider where points are few; no mass leaves the land."""

    def __init__(self, domain: Domain) -> None:
        # In cells, and in single precision, which is ample for kernels and three times as fast.
        self.places = ((domain.node_points - domain.node_points.mean(axis=0)) / domain.cell_size).astype("f4")
        self.areas = (domain.planar_areas / domain.cell_size**2).astype("f4")

    def _sum(self, counts: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Return events per cell from counts at nodes, each spread with its own width."""
        used = np.flatnonzero(counts)
        out = np.zeros(len(self.areas))
        for start in range(0, len(used), 256):
            some = used[start : start + 256]
            x, y = (self.places[some, k, None] - self.places[:, k] for k in (0, 1))
            weight = np.exp((x * x + y * y) * (-0.5 / np.square(widths[some])).astype("f4")[:, None])
            out += (counts[some] / (weight @ self.areas)).astype("f4") @ weight
        return out

    def fit(self, counts: np.ndarray, width: float) -> np.ndarray:
        """Return the estimate with a given global bandwidth, in cells (Abramson's square-root rule)."""
        pilot = self._sum(counts, np.full(len(counts), width))
        log = np.log(np.maximum(pilot, 1e-300))
        return self._sum(counts, width * np.exp(-0.5 * (log - np.average(log, weights=counts))))

    def best(self, nodes: np.ndarray, widths: np.ndarray, folds: int = 5) -> tuple[np.ndarray, float]:
        """Return the estimate with the bandwidth that cross-validation prefers, and that bandwidth.

        `widths` are tried first, a factor apart; then four more around the best of them.
        """
        fold = np.random.default_rng(0).integers(folds, size=len(nodes))
        n = len(self.areas)
        counts = [np.bincount(nodes[fold == k], minlength=n).astype(float) for k in range(folds)]
        total = np.sum(counts, axis=0)

        def held_out(width: float) -> float:
            out = 0.0
            for left in counts:
                value = self.fit(total - left, width) / (total - left).sum()
                out += xlogy(left, np.maximum(value, FLOOR / self.areas.sum())).sum()
            return float(out)

        scores = {float(width): held_out(width) for width in widths}
        best, factor = max(scores, key=scores.__getitem__), widths[1] / widths[0]
        for power in (-0.6, -0.3, 0.3, 0.6):
            scores[best * factor**power] = held_out(best * factor**power)
        width = max(scores, key=scores.__getitem__)
        return self.fit(total, width), width


def adaptive_kernel(which: Pattern, points: np.ndarray, places: np.ndarray) -> Found:
    """Return the adaptive kernel on the pattern's nodes, its bandwidth by five-fold cross-validation."""
    domain = which.domain
    begin = Spent.now()
    kernel = AdaptiveKernel(domain)
    widths = np.geomspace(0.7, max(domain.grid.shape) / 12, 6)
    value, width = kernel.best(domain.locate(points), widths)
    spent = Spent.since(begin)
    at = value[domain.locate(places)] / domain.cell_size**2
    return at, float(value @ kernel.areas), spent, f"bandwidth {width:.2f} cells"


# -- R: all lengths in cells --------------------------------------------------------------------------------------


def in_r(way: str) -> Way:
    """Return one of the ways of resolution.R."""

    def run(which: Pattern, points: np.ndarray, places: np.ndarray) -> Found:
        need_r("spatstat" if way in ("kernel", "adaptive") else "mgcv")
        tables, files = _tables(which, way, points, places)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for stem, frame in tables.items():
                frame.to_csv(folder / f"{stem}.csv", index=False)
            for stem, matrix in files.items():
                np.savetxt(folder / f"{stem}.csv", matrix, fmt="%.5g", delimiter=",")
            _call(["Rscript", str(HERE / "resolution.R"), name, way])
            found = pd.read_csv(folder / "found.csv")["value"].to_numpy(float)
            wall, cpu, note = (folder / "note.txt").read_text(encoding="utf-8").splitlines()[:3]
        spent = Spent(float(wall), float(cpu))
        return found[:-1] / which.domain.cell_size**2, float(found[-1]), spent, note

    return run


@cache
def need_r(package: str) -> None:
    """Raise if R does not have a package."""
    if shutil.which("Rscript") is None:
        raise AbsentError("R is not installed")
    try:
        _call(["Rscript", "-e", f"library({package})"])
    except RuntimeError:
        raise AbsentError(f"R has no {package}") from None


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["failed"]
        raise RuntimeError(" ".join(words[-3:]))


def _tables(
    which: Pattern, way: str, points: np.ndarray, places: np.ndarray
) -> tuple[dict[str, pd.DataFrame], dict[str, np.ndarray]]:
    """Return what resolution.R reads, in cells from the south-western corner of the grid."""
    domain = which.domain
    origin, h = np.array([domain.grid.bounds[0], domain.grid.bounds[1]]), domain.cell_size

    def frame(xy: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame((np.asarray(xy) - origin) / h, columns=["x", "y"])

    if way in ("kernel", "adaptive"):
        share = _land_shares(domain)
        rows, cols = domain.grid.shape
        box = pd.DataFrame({"xmin": [0], "xmax": [cols], "ymin": [0], "ymax": [rows]})
        return {"points": frame(points), "places": frame(places), "frame": box}, {"pixels": share}
    nodes = frame(domain.node_points).assign(
        area=domain.planar_areas / h**2, count=np.bincount(domain.locate(points), minlength=domain.n_nodes)
    )
    if way == "tp":
        return {"points": frame(points), "places": frame(places), "nodes": nodes}, {}
    inner, rings, knots = _soap(domain)
    # Four cells are one row: the film's knots lie some ten cells apart, and its rows are dear.
    square = (domain.node_rows // 2) * domain.grid.shape[1] + domain.node_cols // 2
    sums = nodes.assign(x=nodes.x * nodes.area, y=nodes.y * nodes.area).groupby(square).sum()
    middle = sums[["x", "y"]].to_numpy() / sums[["area"]].to_numpy()
    nodes = frame(_into(middle * h + origin, inner)).assign(
        area=sums["area"].to_numpy(), count=sums["count"].to_numpy()
    )
    parts = [frame(ring).assign(ring=k) for k, ring in enumerate(rings)]
    more = {"rings": pd.concat(parts), "knots": frame(knots), "nodes": nodes}
    return {"points": frame(points), "places": frame(_into(places, inner)), **more}, {}


def _land_shares(domain: Domain) -> np.ndarray:
    """Return the share of land of each of spatstat's pixels, the southernmost row first."""
    rows, cols = domain.grid.shape
    finer = max(1, min(FINER, MOST_PIXELS // max(rows, cols)))
    shape = shapely.transform(domain.grid.shapes_to_cells(domain.geometry), lambda uv: finer * uv)
    share, _ = cover(split_at_grid_lines(ring_segments(shape)), (finer * rows, finer * cols))
    return share[::-1]


def _soap(domain: Domain) -> tuple[shapely.Geometry, list[np.ndarray], np.ndarray]:
    """Return the land as a soap film can bear it (no water or island under 1 %): its inside, rings and knots."""
    h, least = domain.cell_size, 0.01 * domain.geometry.area
    land = domain.geometry.buffer(2 * h).buffer(-2 * h)
    parts = [
        shapely.Polygon(part.exterior, [ring for ring in part.interiors if shapely.Polygon(ring).area > least])
        for part in shapely.get_parts(land)
        if part.area > least
    ]
    land = shapely.simplify(shapely.union_all(parts), h)
    rings = [shapely.get_coordinates(ring) for ring in shapely.get_rings(shapely.get_parts(land))]
    inner = land.buffer(-0.3 * h)
    west, south, east, north = land.bounds
    step = np.sqrt(land.area / 150)
    grid = np.stack(
        np.meshgrid(np.arange(west + step / 2, east, step), np.arange(south + step / 2, north, step)), axis=-1
    ).reshape(-1, 2)
    # mgcv solves for the film on a grid of its own, 150 cells along the longer side: knots stay clear of its edge.
    away = land.buffer(-1.5 * max(h, max(east - west, north - south) / 150))
    return inner, rings, grid[shapely.contains_xy(away, grid[:, 0], grid[:, 1])]


def _into(xy: np.ndarray, inner: shapely.Geometry) -> np.ndarray:
    """Move what lies outside to the nearest place inside."""
    points = shapely.points(xy)
    shapely.prepare(inner)
    out = np.flatnonzero(~shapely.intersects(inner, points))
    moved = np.array(xy, float)
    moved[out] = shapely.get_coordinates(shapely.shortest_line(inner, points[out]))[::2]
    return moved


# -- scores -----------------------------------------------------------------------------------------------------


#: The estimates; with "full, 16,000" only where asked for.
WAYS: dict[str, Way] = {
    "default": ours(),
    "full, 16,000 nodes": ours(m="full"),
    "adaptive kernel": adaptive_kernel,
    "spatstat bw.ppl": in_r("kernel"),
    "spatstat adaptive": in_r("adaptive"),
    "mgcv tp": in_r("tp"),
    "mgcv soap": in_r("soap"),
}


def score(which: Pattern, value: np.ndarray, mass: float) -> float:
    """Return the log of the normalised density at places, on average, less that of an even one."""
    density = np.nan_to_num(value) / mass * which.domain.planar_areas.sum()
    return float(np.log(np.maximum(density, FLOOR)).mean())


def measure(name: str, which: Pattern, thinning: int) -> dict[str, Any]:
    """Run one estimate on one thinning; a failure is a row too, an absent peer is not."""
    points, places = which.thinned(thinning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value, mass, spent, note = WAYS[name](which, points, places)
    except AbsentError:
        raise
    except Exception as error:  # one peer's failure must not stop the others
        return {"score": None, "wall": None, "cpu": None, "note": f"failed: {type(error).__name__}: {error}"}
    missed = int((~np.isfinite(value)).sum())
    note += f"; {missed} places without a value" if missed else ""
    return {
        "score": score(which, value, mass),
        "wall": spent.wall,
        "cpu": spent.cpu,
        "note": note,
        "held_out": len(places),
    }


def summary(found: dict[str, dict[str, list[dict[str, Any] | None]]], clock: str) -> list[list[object]]:
    """Return a line of the table for each pattern and estimate."""
    rows: list[list[object]] = []
    for name, ways in found.items():
        base = _column(ways["default"]) if "default" in ways else None
        for way, runs in ways.items():
            scores = _column(runs)
            if not np.isfinite(scores).any():
                failed = [run["note"] for run in runs if run is not None]
                rows.append([name, way, "-", "-", "-", failed[0] if failed else "not run"])
                continue
            seconds = np.nanmean(_column(runs, clock))
            gap = "" if base is None or way == "default" else _with_error(scores - base, "+")
            note = next(run["note"] for run in reversed(runs) if run is not None)
            rows.append([name, way, _with_error(scores), gap, f"{seconds:.1f}", note])
    return rows


def _column(runs: list[dict[str, Any] | None], key: str = "score") -> np.ndarray:
    return np.array([np.nan if run is None or run[key] is None else run[key] for run in runs], float)


def _mean_error(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error of what is known; the error of a single value is unknown."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return np.nan, np.nan
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else np.nan


def _with_error(values: np.ndarray, sign: str = "") -> str:
    mean, error = _mean_error(values)
    if np.isnan(mean):
        return "-"
    return f"{mean:{sign}.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")


def draw(found: dict[str, dict[str, list[dict[str, Any] | None]]], clock: str, path: Path) -> None:
    """Draw each estimate's score against the default's, and its seconds, pattern by pattern."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ways = [way for way in WAYS if way != "default" and any(way in runs for runs in found.values())]
    colours = dict(zip(["default", *ways], plt.get_cmap("tab10").colors, strict=False))
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 0.75 * len(found) + 1.6), layout="constrained", sharey=True)
    for row, runs in enumerate(found.values()):
        base = _column(runs["default"])
        for k, way in enumerate(["default", *ways]):
            if way not in runs:
                continue
            at = row + 0.11 * (k - len(ways) / 2)
            mean, error = _mean_error(_column(runs[way]) - base)
            if way != "default" and np.isfinite(mean):
                left.errorbar(mean, at, xerr=0 if np.isnan(error) else 2 * error, fmt="o", ms=4, color=colours[way])
            seconds = _mean_error(_column(runs[way], clock))[0]
            if np.isfinite(seconds):
                label = way if row == 0 else None
                right.plot(seconds, at, "o", ms=5, color=colours[way], label=label)
    left.axvline(0, color="black", lw=1)
    left.set_yticks(range(len(found)), list(found))
    left.invert_yaxis()
    left.set_xlabel("held-out score less the default's, nats per point (bars: two standard errors)")
    right.set_xscale("log")
    right.set_xlabel(f"seconds ({clock})")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    for ax in (left, right):
        ax.grid(axis="x", color="0.9")
        ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="folder in which rows are kept as they come")
    parser.add_argument("--thinnings", type=int, default=5)
    parser.add_argument("--patterns", nargs="*", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--only", nargs="*", choices=WAYS, default=[w for w in WAYS if not w.startswith("full")])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="the seconds to show")
    parser.add_argument("--quick", action="store_true", help="a coarse grid and one thinning; nothing is kept")
    parser.add_argument("--no-runs", action="store_true", help="only the table and picture of the rows there are")
    options = parser.parse_args()
    thinnings = 1 if options.quick else options.thinnings
    rows = Rows(None if options.quick else options.rows)
    found: dict[str, dict[str, list[dict[str, Any] | None]]] = {
        name: {way: [None] * thinnings for way in options.only} for name in options.patterns
    }
    absent: dict[str, str] = {}
    for thinning in range(thinnings):
        for name in options.patterns:
            which = None
            for way in options.only:
                row = rows.get(name, thinning, way)
                if row is None and way not in absent and not options.no_runs:
                    which = which or pattern(name, 2000 if options.quick else NODES)
                    try:
                        row = rows.put(measure(way, which, thinning), name, thinning, way)
                    except AbsentError as why:
                        absent[way] = str(why)
                        continue
                    print(name, thinning, way, row, flush=True)
                found[name][way][thinning] = row
    for ways in found.values():
        for way in absent:
            del ways[way]
    text = [
        "# Held-out score of clustered patterns (nats per point over an even density)",
        "",
        machine(),
        f"{count(thinnings, 'thinning')} of each pattern, a quarter of the points held out: mean ± standard error "
        "over the thinnings, and the difference to the default, paired by thinning, with its own. Seconds from points "
        f"to map by the {'processor' if options.clock == 'cpu' else 'wall'} clock, mean over the thinnings.",
        *(f"{way}: left out, {why}." for way, why in absent.items()),
        "",
        table(
            ["pattern", "estimate", "score", "to the default", "seconds", "last thinning"],
            summary(found, options.clock),
        ),
    ]
    if options.quick or "default" not in options.only or len(options.patterns) < len(MAKERS):
        print("\n".join(text))
        return
    keep("resolution", "\n".join(text))
    draw(found, options.clock, RESULTS / "resolution.png")


if __name__ == "__main__":
    main()
