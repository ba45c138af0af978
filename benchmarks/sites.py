"""What values.py and prevalence.py share: sites on land, what is held out, rivals in R, scores and tables.

Lands and truths are made here and are drawn from none of the models: bumps that fall off with the distance over land
(Dijkstra's algorithm on a fine raster), sources that have diffused over land, regimes that differ between the banks
of a river, and bumps on open land.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import splu
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom
from tables import Rows, machine, table

from geobgp.checks.scoring import Predictive, log_mean_exp, per_event

HERE = Path(__file__).resolve().parent
#: Side of the raster on which truths are made, in km; draws of each prediction.
FINE, DRAWS = 0.5, 1000
#: Seconds that one call of R may take; and that a search may: so many that the clock of a busy machine decides nothing.
LIMIT, SEARCH = 7200.0, 3600.0
#: Folds of sites, and of blocks; squares along a side of a square land, of which blocks are made.
FOLDS, BLOCKS, SQUARES = 5, 5, 5
#: Truths that are drawn of each simulated set; sites that are fitted of each, and as many more that are only scored.
TRUTHS, SITES = 5, 220
#: What a site is to a fit.
TRAINED, HELD, ABSENT = 0, 1, -1


@dataclass(frozen=True)
class Sites:
    """Observations at places on land.

    Attributes
    ----------
    name : str
    land : polygon
        Without the water.
    xy : (n, 2) array
    values : (n,) array
        What was measured, or the number of positives.
    tested : (n,) array, optional
    barrier : bool
        Whether water cuts through what is to be mapped.
    truth : (n,) array of int, optional
        Of simulated sites, the truth that each is of: fits are of one at a time.
    """

    name: str
    land: shapely.Geometry
    xy: np.ndarray
    values: np.ndarray
    tested: np.ndarray | None = None
    barrier: bool = False
    truth: np.ndarray | None = None

    @property
    def n(self) -> int:
        """Number of sites."""
        return len(self.xy)

    @property
    def size(self) -> np.ndarray:
        """How many were tested at each."""
        return np.ones(self.n) if self.tested is None else self.tested

    def some(self, which: np.ndarray) -> Sites:
        """Return some of the sites."""
        tested = None if self.tested is None else self.tested[which]
        return replace(self, xy=self.xy[which], values=self.values[which], tested=tested, truth=None)

    @property
    def squares(self) -> np.ndarray:
        """The square that every site lies in."""
        side = np.sqrt(shapely.area(self.land)) / SQUARES
        row, col = ((self.xy - self.xy.min(axis=0)) // side).astype(int).T
        return np.unique(row * 1000 + col, return_inverse=True)[1]

    def folds(self, whole_squares: bool) -> np.ndarray:
        """Return what each site is to each fit, (n, fits).

        Of simulated sites the first half of each truth is fitted, and the second half is scored; with whole squares,
        the first half outside a fifth of them is, and all within are. Data are cut into folds.
        """
        squares = self.squares
        if self.truth is not None:
            columns = []
            for k in range(self.truth.max() + 1):
                here = self.truth == k
                first = here & (np.cumsum(here) <= here.sum() // 2)
                chosen = np.random.default_rng(k).permutation(squares.max() + 1)[: squares.max() // BLOCKS]
                held = here & (np.isin(squares, chosen) if whole_squares else ~first)
                columns.append(np.where(held, HELD, np.where(first, TRAINED, ABSENT)))
            return np.column_stack(columns)
        if whole_squares:
            fold = np.random.default_rng(1).permutation(squares.max() + 1)[squares] % BLOCKS
        else:
            fold = np.random.default_rng(self.n).permutation(self.n) % FOLDS
        return np.where(fold[:, None] == np.unique(fold), HELD, TRAINED)

    def groups(self, whole_squares: bool) -> np.ndarray:
        """Return groups of sites whose scores are independent of each other's: truths, squares, or sites."""
        if self.truth is not None:
            return self.truth
        return self.squares if whole_squares else np.arange(self.n)


# -- land and truths ------------------------------------------------------------------------------------------------


def inlets() -> shapely.Geometry:
    """Return land into which three narrow inlets reach, from either side in turn."""
    along = np.linspace(-5, 74, 120)
    cuts = [
        shapely.LineString(np.c_[along if k != 1 else 100 - along, 20 * (k + 1) + 3 * np.sin(along / 12 + k)])
        for k in range(3)
    ]
    return shapely.box(0, 0, 100, 80).buffer(-6).buffer(6).difference(shapely.union_all(cuts).buffer(0.9))


def among_lakes() -> shapely.Geometry:
    """Return land with three long and narrow lakes."""
    along = np.linspace(12, 68, 80)
    lakes = [shapely.LineString(np.c_[22 + 28 * k + 4 * np.sin(along / 10 + k), along]).buffer(1.1) for k in range(3)]
    return shapely.box(0, 0, 100, 80).buffer(-6).buffer(6).difference(shapely.union_all(lakes))


def river_banks() -> shapely.Geometry:
    """Return land that a river cuts in two."""
    along = np.linspace(-5, 105, 150)
    river = shapely.LineString(np.c_[along, 38 + 9 * np.sin(along / 17)]).buffer(0.75)
    return shapely.box(0, 0, 100, 80).buffer(-6).buffer(6).difference(river)


def open_land() -> shapely.Geometry:
    """Return land without water."""
    return shapely.box(0, 0, 100, 80).buffer(-6).buffer(6)


class Raster:
    """Fine squares of land with the ways between them."""

    def __init__(self, land: shapely.Geometry) -> None:
        west, south, east, north = land.bounds
        x, y = np.meshgrid(np.arange(west, east, FINE) + FINE / 2, np.arange(south, north, FINE) + FINE / 2)
        inside = shapely.contains_xy(land, x, y)
        self.xy = np.c_[x[inside], y[inside]]
        number = np.full(inside.shape, -1)
        number[inside] = np.arange(inside.sum())
        self.number, self.origin = number, np.array([west, south])

    def ways(self, *steps: tuple[int, int]) -> sparse.csr_matrix:
        """Return the lengths of steps between squares, in km; a step crosses no water."""
        rows, cols, lengths = [], [], []
        height, width = self.number.shape
        for up, right in steps:
            parts = max(abs(up), abs(right))
            at = [np.s_[max(0, -s) : n - max(0, s)] for s, n in ((up, height), (right, width))]
            row, col = (axis[tuple(at)] for axis in np.indices(self.number.shape))
            free = np.ones(row.shape, bool)
            for k in range(parts + 1):  # squares on the way, both of those that it passes between
                for side in (np.floor, np.ceil):
                    r, c = row + int(side(k * up / parts)), col + int(side(k * right / parts))
                    free &= self.number[r, c] >= 0
            rows.append(self.number[row[free], col[free]])
            cols.append(self.number[row[free] + up, col[free] + right])
            lengths.append(np.full(len(rows[-1]), FINE * np.hypot(up, right)))
        n = len(self.xy)
        half = sparse.csr_matrix((np.concatenate(lengths), (np.concatenate(rows), np.concatenate(cols))), (n, n))
        return (half + half.T).tocsr()

    def at(self, xy: np.ndarray) -> np.ndarray:
        """Return the squares that places lie on; -1 in the water."""
        col, row = ((xy - self.origin) // FINE).astype(int).T
        inside = (row >= 0) & (row < self.number.shape[0]) & (col >= 0) & (col < self.number.shape[1])
        out = np.full(len(xy), -1)
        out[inside] = self.number[row[inside], col[inside]]
        return out


def _scaled(field: np.ndarray) -> np.ndarray:
    return (field - field.mean()) / field.std()


def bumps_over_land(raster: Raster, rng: np.random.Generator) -> np.ndarray:
    """Return bumps that fall off with the distance over land."""
    centres = rng.choice(len(raster.xy), 16, replace=False)
    ways = raster.ways((0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (2, 1), (1, -2), (2, -1))
    far = dijkstra(ways, directed=False, indices=centres)
    width, height = (rng.uniform(9, 20, len(centres)), rng.choice([-1, 1], len(centres)) * rng.uniform(0.5, 1.5, 16))
    return _scaled(height @ np.exp(-0.5 * np.square(far / width[:, None])))


def diffused(raster: Raster, rng: np.random.Generator) -> np.ndarray:
    """Return what 50 sources have become by diffusion over land."""
    steps = raster.ways((0, 1), (1, 0)).astype(bool).astype(float)
    laplacian = sparse.diags(np.asarray(steps.sum(axis=1)).ravel()) - steps
    field = np.zeros(len(raster.xy))
    field[rng.choice(len(field), 50, replace=False)] = rng.uniform(0.5, 1.5, 50) * rng.choice([-1, 1], 50)
    factor = splu((sparse.eye(len(field)) + (10.0 / FINE) ** 2 / 2 / 6 * laplacian).tocsc())
    for _ in range(6):
        field = factor.solve(field)
    return _scaled(field)


def regimes(raster: Raster, rng: np.random.Generator) -> np.ndarray:
    """Return a level, a trend and bumps of each bank's own."""
    _, bank = sparse.csgraph.connected_components(raster.ways((0, 1), (1, 0)))
    field = np.zeros(len(raster.xy))
    for k in range(bank.max() + 1):
        here = raster.xy[bank == k]
        field[bank == k] = [-1.0, 1.0][k % 2] + (here - here.mean(axis=0)) @ rng.normal(0, 0.015, 2)
        for centre in here[rng.choice(len(here), 5, replace=False)]:
            far = np.square(here - centre).sum(axis=1) / rng.uniform(8, 16) ** 2
            field[bank == k] += rng.normal(0, 0.9) / (1 + far)
    return _scaled(field)


def bumps(raster: Raster, rng: np.random.Generator) -> np.ndarray:
    """Return bumps on open land."""
    field = np.zeros(len(raster.xy))
    for centre in raster.xy[rng.choice(len(raster.xy), 14, replace=False)]:
        far = np.square(raster.xy - centre).sum(axis=1) / (2 * rng.uniform(7, 18) ** 2)
        field += rng.normal() * np.exp(-far)
    return _scaled(field)


SIMULATED: dict[str, tuple[Callable[[], shapely.Geometry], Callable[..., np.ndarray], bool]] = {
    "inlets": (inlets, bumps_over_land, True),
    "lakes": (among_lakes, diffused, True),
    "river": (river_banks, regimes, True),
    "open": (open_land, bumps, False),
}


@cache
def fine(name: str) -> tuple[shapely.Geometry, Raster]:
    """Return the land of simulated data, and its raster."""
    land = SIMULATED[name][0]()
    return land, Raster(land)


def simulated(
    name: str, seed: Sequence[int], truths: int, observe: Callable[[np.ndarray, np.random.Generator], Any]
) -> Sites:
    """Return sites of several truths, each with mean 0 and sd 1 over the land.

    Parameters
    ----------
    name : str
    seed : sequence of int
    truths : int
    observe : callable
        Returns what is observed at sites, as values and numbers of those tested, from the truth there and a generator.
    """
    land, raster = fine(name)
    within = land.buffer(-0.8)
    places, observed = [], []
    for k in range(truths):
        rng = np.random.default_rng([*seed, list(SIMULATED).index(name), k])
        field = SIMULATED[name][1](raster, rng)
        xy = rng.uniform(land.bounds[:2], land.bounds[2:], (16 * SITES, 2))
        xy = xy[shapely.contains_xy(within, xy[:, 0], xy[:, 1]) & (raster.at(xy) >= 0)][: 2 * SITES]
        places.append(xy)
        observed.append(observe(field[raster.at(xy)], rng))
    values, tested = (None if part[0] is None else np.concatenate(part) for part in zip(*observed, strict=True))
    number = np.repeat(np.arange(truths), 2 * SITES)
    return Sites(name, land, np.concatenate(places), values, tested, barrier=SIMULATED[name][2], truth=number)


@cache
def from_r(name: str) -> tuple[pd.DataFrame, shapely.Geometry]:
    """Return sites of a data set that comes with sp or gstat, and the land around them."""
    need_r("sp", "gstat")
    with tempfile.TemporaryDirectory() as folder:
        _call(["Rscript", str(HERE / "sites.R"), folder, "data", name])
        sites = pd.read_csv(Path(folder) / "sites.csv")
        points = shapely.multipoints(sites[["x", "y"]].to_numpy())
        side = np.sqrt(points.convex_hull.area)
        around = points.convex_hull.buffer(0.05 * side)
        if (Path(folder) / "land.csv").exists():
            outline = pd.read_csv(Path(folder) / "land.csv").to_numpy()
            around = shapely.union_all([shapely.Polygon(outline).buffer(0.005 * side), points.buffer(0.01 * side)])
    return sites, around


# -- predictions and their scores ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """Scores of every site of a data set, when it was held out.

    Attributes
    ----------
    log, crps, error, pit : (n,) arrays
        Log score; CRPS; the observation less the mean (of numbers of positives, shares of those tested); PIT value.
    seconds : float
        Of the processor, for all fits.
    """

    log: np.ndarray
    crps: np.ndarray
    error: np.ndarray
    pit: np.ndarray
    seconds: float = 0.0
    note: str = ""

    @property
    def known(self) -> np.ndarray:
        """Which sites were held out."""
        return np.isfinite(self.pit)

    @property
    def inside(self) -> np.ndarray:
        """Which sites lie in their 90 % intervals."""
        return (self.pit >= 0.05) & (self.pit <= 0.95)

    @property
    def rmse(self) -> float:
        """The root of the mean squared error."""
        return float(np.sqrt(np.nanmean(self.error**2)))

    @classmethod
    def empty(cls, n: int) -> Scored:
        """Return places for the scores of n sites."""
        return cls(*(np.full(n, np.nan) for _ in range(4)))

    @classmethod
    def of(cls, held: Sites, log: np.ndarray, draws: np.ndarray) -> Scored:
        """Return the scores of log densities and draws, (DRAWS, k)."""
        size = held.size
        predictive = Predictive(draws / size)
        observed = held.values / size
        pit = Predictive(draws).pit(np.random.default_rng(held.n), held.values)
        return cls(log, predictive.crps(observed), observed - predictive.mean, pit)

    def put(self, which: np.ndarray, other: Scored) -> None:
        """Fill in the scores of some sites."""
        for name in ("log", "crps", "error", "pit"):
            getattr(self, name)[which] = getattr(other, name)


def normal_draws(n: int) -> np.ndarray:
    """Return draws of standard normals, (DRAWS, n): quantiles in an order of their own at each site."""
    levels = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
    return np.random.default_rng(n).permuted(np.tile(levels[:, None], n), axis=0)


def score_posterior(posterior: Any, held: Sites) -> Scored:
    """Return the scores of a posterior at held-out sites."""
    mean, variance = posterior.predict(held.xy)
    family = posterior.likelihood
    if held.tested is None:
        states = posterior.fit.states
        noise = np.average([state.noise**2 for state in states], weights=[state.weight for state in states])
        sd, root = np.sqrt(variance + noise), family.link.name == "square"
        if root:  # of Box and Cox it is 2 √y - 2
            mean, sd = 2 * mean - 2, 2 * sd
        power = {"square": 0.5, "exp": 0.0}.get(family.link.name, 1.0)
        return score_normal(pd.DataFrame({"mean": mean, "sd": sd, "lambda": power}), held, "")
    eta = mean + np.sqrt(variance) * normal_draws(held.n)
    log = log_mean_exp(family.log_density(held.values, eta, held.size))
    return Scored.of(held, log, family.draw(eta, held.size, np.random.default_rng(held.n)))


def score_normal(found: pd.DataFrame, held: Sites, way: str) -> Scored:
    """Return the scores of what R predicts."""
    mean, sd, power = (found[name].to_numpy(float) for name in ("mean", "sd", "lambda"))
    rng = np.random.default_rng(held.n)
    latent, y = mean + sd * normal_draws(held.n), held.values
    if held.tested is None:
        out = np.array([1 / p if p > 0 else 0.0 for p in power])  # of the inverse
        with np.errstate(all="ignore"):
            at = np.where(power == 0, np.log(y), np.where(power == 1, y, (y**power - 1) * out))
            draws = np.where(power == 0, np.exp(latent), np.maximum(1 + power * latent, 0) ** out)
            draws = np.where(power == 1, latent, draws)
            jacobian = np.where(power == 1, 0.0, (power - 1) * np.log(np.abs(y)))
        log = -0.5 * ((at - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi) + jacobian
        return Scored.of(held, log, draws)
    n = held.tested
    if way.endswith("kriging"):  # of empirical log odds: the chance of the interval that belongs to a number

        def below(number: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore"):
                return np.log((number + 0.5) / (n - number + 0.5))

        upper = np.where(y >= n, np.inf, below(np.minimum(y + 0.5, n)))
        lower = np.where(y <= 0, -np.inf, below(np.maximum(y - 0.5, 0)))
        log = np.log(np.maximum(ndtr((upper - mean) / sd) - ndtr((lower - mean) / sd), 1e-12))
        draws = np.clip(np.round((n + 1) * expit(latent) - 0.5), 0, n)
    else:
        log = log_mean_exp(binom.logpmf(y, n, expit(latent)))
        draws = rng.binomial(n.astype(int), expit(latent)).astype(float)
    return Scored.of(held, log, draws)


# -- ways --------------------------------------------------------------------------------------------------------------

Fit = Callable[[Sites], Any]


def ours(sites: Sites, folds: np.ndarray, fit: Fit) -> Scored:
    """Return the scores of a way that gives a posterior of some sites."""
    out, seconds = Scored.empty(sites.n), 0.0
    for role in folds.T:
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = fit(sites.some(role == TRAINED))
        seconds += time.process_time() - begin
        out.put(role == HELD, score_posterior(posterior, sites.some(role == HELD)))
    info, family = posterior.basis_info, posterior.likelihood
    note = (
        f"{family.name}, m = {info['m']}, {posterior.domain.n_nodes:,} nodes, "
        f"lengthscale {posterior.lengthscale:.3g}, sd {posterior.sd:.3g}"
    )
    return replace(out, seconds=seconds, note=note)


#: The names of R's ways in sites.R.
IN_R = {
    "ordinary kriging": "ordinary",
    "universal kriging": "universal",
    "thin-plate GAM": "tp",
    "soap-film GAM": "soap",
}


def in_r(sites: Sites, folds: np.ndarray, name: str) -> Scored:
    """Return the scores of one of R's ways."""
    need_r("mgcv" if "GAM" in name else "gstat")
    data = pd.DataFrame(sites.xy, columns=["x", "y"])
    if sites.tested is None:
        data["value"] = sites.values
    else:
        data["positive"], data["tested"] = sites.values, sites.tested
    with tempfile.TemporaryDirectory() as folder:
        data.to_csv(Path(folder) / "sites.csv", index=False)
        pd.DataFrame(folds).to_csv(Path(folder) / "folds.csv", index=False)
        if IN_R[name] == "soap":
            rings, knots = _film(sites)
            rings.to_csv(Path(folder) / "rings.csv", index=False)
            knots.to_csv(Path(folder) / "knots.csv", index=False)
        kind = "values" if sites.tested is None else "prevalence"
        _call(["Rscript", str(HERE / "sites.R"), folder, kind, IN_R[name]])
        found = pd.read_csv(Path(folder) / "found.csv")
        seconds, note = (Path(folder) / "note.txt").read_text(encoding="utf-8").splitlines()[:2]
    found = found.sort_values("site")
    which = found["site"].to_numpy(int)
    out = Scored.empty(sites.n)
    out.put(which, score_normal(found, sites.some(which), name))
    return replace(out, seconds=float(seconds), note=note)


def _film(sites: Sites) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the boundary's rings and knots inside, for a soap film."""
    land = sites.land.simplify(0.3)
    rings = [ring for part in shapely.get_parts(land) for ring in shapely.get_rings(part)]
    frames = [
        pd.DataFrame(shapely.get_coordinates(ring), columns=["x", "y"]).assign(ring=k) for k, ring in enumerate(rings)
    ]
    step = np.sqrt(land.area / 70)
    west, south, east, north = land.bounds
    x, y = (
        v.ravel() for v in np.meshgrid(np.arange(west, east, step) + step / 2, np.arange(south, north, step) + step / 2)
    )
    inside = shapely.contains_xy(land.buffer(-0.2 * step), x, y)
    return pd.concat(frames), pd.DataFrame({"x": x[inside], "y": y[inside]})


class AbsentError(Exception):
    """R, or one of its packages, is not installed here."""


@cache
def need_r(*packages: str) -> None:
    """Raise if R does not have these packages."""
    if shutil.which("Rscript") is None:
        raise AbsentError("R is not installed")
    for package in packages:
        try:
            _call(["Rscript", "-e", f"library({package})"])
        except RuntimeError:
            raise AbsentError(f"R has no {package}") from None


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["failed"]
        raise RuntimeError(" ".join(words[-3:]))


# -- the run and its table -----------------------------------------------------------------------------------------


def arguments(about: str, ways: list[str], sets: list[str]) -> argparse.Namespace:
    """Return what the shell asked for."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets)
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--rows", help="folder that keeps the scores of a run, which goes on from there")
    parser.add_argument("--truths", type=int, default=TRUTHS, help="how many of each simulated set")
    parser.add_argument("--seed", type=int, default=0, help="of simulated sets")
    parser.add_argument("--keep", action="store_true", help="write the tables to results/")
    parser.add_argument("--quick", action="store_true", help="two fits of sites and two of blocks")
    return parser.parse_args()


#: How sites are held out, and of what.
SCHEMES = {"sites": "single sites", "blocks": "whole squares"}


def scored(sites: Sites, ways: Mapping[str, Fit | None], rows: Rows, quick: bool) -> dict[str, dict[str, Scored]]:
    """Return the scores of every way, by sites and by blocks; those that cannot be had are left out."""
    out: dict[str, dict[str, Scored]] = {}
    for scheme in SCHEMES:
        out[scheme] = {}
        folds = sites.folds(scheme == "blocks")[:, : 2 if quick else None]
        for name, fit in ways.items():
            if name == "soap-film GAM" and not sites.name.startswith(tuple(SIMULATED)):
                continue

            def run(name: str = name, fit: Fit | None = fit, folds: np.ndarray = folds) -> dict[str, Any]:
                one = in_r(sites, folds, name) if fit is None else ours(sites, folds, fit)
                return {key: np.asarray(value).tolist() for key, value in vars(one).items()}

            try:
                row = rows.of(run, sites.name, scheme, name)
            except (AbsentError, RuntimeError) as error:
                print(f"{sites.name}, {scheme}, {name}: {error}", flush=True)
                continue
            out[scheme][name] = Scored(
                *(np.array(row[k]) for k in ("log", "crps", "error", "pit")), row["seconds"], row["note"]
            )
            print(f"{sites.name}, {scheme}, {name}: {_line(out[scheme][name])}", flush=True)
    return out


def _line(one: Scored) -> str:
    inside = np.mean(one.inside[one.known])
    return (
        f"log {np.nanmean(one.log):.4f}, CRPS {np.nanmean(one.crps):.4g}, RMSE {one.rmse:.4g}, "
        f"coverage {inside:.1%}, {one.seconds:.1f} s, {one.note}"
    )


def difference(ours: np.ndarray, other: np.ndarray, group: np.ndarray) -> tuple[float, float]:
    """Return the mean difference of scores per held-out site, and its standard error by groups of sites."""
    known = np.isfinite(ours)
    by = np.bincount(group[known], (ours - other)[known])
    sites = np.bincount(group[known]).astype(float)
    return per_event(by[sites > 0], sites[sites > 0])


def report(
    results: Mapping[str, tuple[Sites, dict[str, dict[str, Scored]]]], default: str, title: str, words: str
) -> str:
    """Return the tables, and in words how the default stands against the best rival on every set."""
    parts = [f"# {title}", "", machine("geobgp"), "", words, ""]
    verdicts: list[list[object]] = []
    for scheme, held in SCHEMES.items():
        lines: list[list[object]] = []
        for name, (sites, by_scheme) in results.items():
            found = by_scheme[scheme]
            group = sites.groups(scheme == "blocks")
            for way, one in found.items():
                log, se = difference(one.log, np.zeros(sites.n), group)
                inside, wide = difference(np.where(one.known, one.inside, np.nan), np.zeros(sites.n), group)
                lines.append(
                    [
                        name,
                        way,
                        f"{log:.3f} ± {se:.3f}",
                        f"{np.nanmean(one.crps):.4g}",
                        f"{one.rmse:.4g}",
                        f"{100 * inside:.1f} % ± {100 * wide:.1f}",
                        f"{one.seconds:.1f}",
                    ]
                )
            rivals = {way: one for way, one in found.items() if way in IN_R}
            if default not in found or not rivals:
                continue
            best = max(rivals, key=lambda way: float(np.nanmean(rivals[way].log)))
            gain, se = difference(found[default].log, rivals[best].log, group)
            crps = min(float(np.nanmean(one.crps)) for one in rivals.values())
            rmse = min(one.rmse for one in rivals.values())
            verdict = "ahead" if gain > se else "level" if gain >= -se else "behind"
            verdicts.append(
                [
                    name,
                    "yes" if sites.barrier else "no",
                    scheme,
                    best,
                    f"{gain:+.3f} ± {se:.3f}",
                    verdict,
                    f"{np.nanmean(found[default].crps) / crps:.3f}",
                    f"{found[default].rmse / rmse:.3f}",
                ]
            )
        header = ["data", "way", "log score", "CRPS", "RMSE", "90 % intervals hold", "seconds"]
        parts += [f"## Held out: {held}", "", table(header, lines), ""]
    header = [
        "data",
        "barrier",
        "held out",
        "best rival",
        "log score less the rival's",
        "",
        "CRPS / best",
        "RMSE / best",
    ]
    return "\n".join([*parts, f"## {default} against the best rival", "", table(header, verdicts)])
