"""Hot spots against a scan statistic: circular clusters of relative risk planted among the people of the Netherlands.

A number of cases is drawn among people at one rate, higher by the relative risk within a circle that holds a given
share of all people. Hot spots are the parts of the land that exceed the rate of all people with 95 %, from a fit whose
hyperparameters are learned; with --bayes also those of maps that vary by their Bayes factor alone. The scan is
Kulldorff's: the Poisson likelihood ratio of every circle of cells around a cell with at most half of the people, and
the rank of the largest among those of cases drawn at one rate.

    python benchmarks/hotspots.py [--runs 200] [--cases 300,1000,3000] [--risks 1,1.5,2,3] [--share 0.03] [--bayes]
        [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import scipy
from scipy.special import xlogy

import geobgp
from geobgp import LGCP, Domain, FullRank, Matern
from geobgp.data.inputs import Inputs

SAMPLE = Path(__file__).resolve().parent.parent / "sample_data"
#: A scan rejects at this level, and hot spots hold with one less it.
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Scan:
    """A circular scan statistic over cells with people.

    Attributes
    ----------
    order : (n, n) array
        Cells by their distance from each centre.
    expected : (n, n) array
        The share of all people within each circle, as it takes in cell after cell.
    null : array
        The largest log likelihood ratio of sets of cases at one rate, ascending.
    """

    people: np.ndarray
    order: np.ndarray
    expected: np.ndarray
    null: np.ndarray

    @classmethod
    def over(cls, places: np.ndarray, people: np.ndarray, cases: int, rng: np.random.Generator) -> Scan:
        """Return a scan that knows its null distribution, from 999 sets of cases."""
        gaps = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
        order = np.argsort(gaps, axis=1, kind="stable")
        expected = np.cumsum(people[order] / people.sum(), axis=1)
        bare = cls(people, order, expected, np.zeros(0))
        null = [bare.largest(rng.multinomial(cases, people / people.sum()))[0] for _ in range(999)]
        return cls(people, order, expected, np.sort(null))

    def largest(self, counts: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the largest log likelihood ratio of a circle with more than expected, and the cells of its circle."""
        total = counts.sum()
        inside = np.cumsum(counts[self.order], axis=1)
        mean = total * self.expected
        some = (inside > mean) & (self.expected <= 0.5)
        rest = np.where(some, total - mean, 1.0)
        ratio = xlogy(inside, inside / mean) + xlogy(total - inside, (total - inside) / rest)
        ratio = np.where(some, ratio, 0.0)
        centre, last = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        return float(ratio[centre, last]), self.order[centre, : last + 1]

    def p_value(self, ratio: float) -> float:
        """Return the Monte Carlo p of a log likelihood ratio."""
        above = len(self.null) - np.searchsorted(self.null, ratio - 1e-12)
        return float((1 + above) / (1 + len(self.null)))


def circle(places: np.ndarray, people: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return which cells lie in a circle about somebody's cell that holds about a share of the people."""
    centre = places[rng.choice(len(places), p=people / people.sum())]
    order = np.argsort(((places - centre) ** 2).sum(axis=1), kind="stable")
    held = np.cumsum(people[order]) / people.sum()
    out = np.zeros(len(places), bool)
    out[order[: int(np.argmin(np.abs(held - share))) + 1]] = True
    return out


def judged(flagged: np.ndarray, planted: np.ndarray, people: np.ndarray, risk: float) -> dict[str, float]:
    """Return whether there is an alarm, and what of the cluster is in it, in terms of people."""
    both, alarm = people[flagged & planted].sum(), float(flagged.any())
    out = {"alarm": alarm}
    if risk > 1.0:
        out["hit"] = float(both > 0)
        out["outside"] = float(flagged.any() and both == 0)
        if both > 0:
            out["found"] = both / people[planted].sum()
            out["right"] = both / people[flagged].sum()
            out["overlap"] = both / people[flagged | planted].sum()
    return out


def runs(n: int, cases: int, risks: list[float], share: float, cell_size: float, bayes: bool) -> pd.DataFrame:
    """Return what hot spots and the scan make of the same data sets, a row for each of them."""
    domain = Domain.from_polygons(gpd.read_file(SAMPLE / "netherlands_land.gpkg"), cell_size=cell_size, crs=28992)
    inputs = Inputs.read(domain, exposure=SAMPLE / "population_netherlands.tif")
    people, places = inputs.exposure, domain.node_points
    some = people > 0
    rng = np.random.default_rng([cases, round(1e6 * share)])
    scan = Scan.over(places[some], people[some], cases, rng)
    model = LGCP(FullRank(domain), Matern(1.0), exposure=people)
    rows = []
    for risk in risks:
        for _ in range(n):
            planted = circle(places, people, share, rng) & some
            weights = people * np.where(planted, risk, 1.0)
            counts = rng.multinomial(cases, weights / weights.sum())
            start = time.perf_counter()
            posterior = model.fit(counts)
            hot = posterior.excursion(cases / people.sum() * posterior.shown.factor, 1 - LEVEL)
            middle = time.perf_counter()
            factor = posterior.variation(held_out=False).log_bayes_factor if bayes else 0.0
            checked = time.perf_counter()
            ratio, cells = scan.largest(counts[some])
            circled = np.zeros(len(people), bool)
            if scan.p_value(ratio) <= LEVEL:
                circled[np.flatnonzero(some)[cells]] = True
            end = time.perf_counter()
            facts = {"cases": cases, "risk": risk}
            spots, nothing = hot.above & some, np.zeros_like(some)
            made = [("hot spots", spots, middle - start), ("scan", circled, end - checked)]
            if bayes:
                for least in (0.0, 3.0):
                    kept = spots if factor > least else nothing
                    made.insert(-1, (f"hot spots, log BF > {least:g}", kept, checked - start))
            for name, flagged, seconds in made:
                rows.append(facts | {"by": name, "s": seconds} | judged(flagged, planted, people, risk))
        print(cases, risk, f"{len(rows) // len(made)} data sets", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def report(table: pd.DataFrame, n: int, share: float, cell_size: float, bayes: bool) -> str:
    """Return the table of results as Markdown."""

    def cell(value: float) -> str:
        return "" if pd.isna(value) else f"{100 * value:.0f} %"

    told = " Log BF: hot spots only of maps that vary, by the log Bayes factor of `variation()`."
    versions = f"geobgp {geobgp.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, SciPy"
    lines = [
        "# Hot spots against a scan statistic\n",
        f"{versions} {scipy.__version__}, {os.cpu_count()} cores: `python {' '.join(sys.argv)}`. {n} data sets a "
        f"row. Circular clusters that hold {100 * share:g} % of the people of the Netherlands, on cells of "
        f"{cell_size / 1000:g} km. Hot spots exceed the rate of all people with 95 % at once; the scan is Kulldorff's, "
        "with Poisson likelihood ratios, circles with up to half of the people, and p of at most 5 % by 999 sets of "
        f"cases.{told if bayes else ''}\n",
        "Alarm: data sets with a hot spot, or a circle that is significant (of relative risk 1: false alarms). Hit: it "
        "overlaps the cluster. Outside: it does not. Of the hits, by people, on average: found, the share of the "
        "cluster that is in it; right, the share of it that is in the cluster; overlap, what both have over what "
        "either has.\n",
        "| cases | relative risk | by | alarm | hit | outside | found | right | overlap | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    shares = ["alarm", "hit", "outside", "found", "right", "overlap"]
    for (cases, risk, by), rows in table.groupby(["cases", "risk", "by"], sort=False):
        means = rows[shares].mean()
        numbers = " | ".join(cell(means[name]) for name in shares)
        lines.append(f"| {cases:,} | {risk:g} | {by} | {numbers} | {rows['s'].median():.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run it, and write or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cases", default="300,1000,3000")
    parser.add_argument("--risks", default="1,1.5,2,3")
    parser.add_argument("--bayes", action="store_true")
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--cell-size", type=float, default=10_000.0)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    numbers, risks = [int(one) for one in asked.cases.split(",")], [float(one) for one in asked.risks.split(",")]
    how = asked.share, asked.cell_size, asked.bayes
    table = pd.concat([runs(asked.runs, one, risks, *how) for one in numbers])
    text = report(table, asked.runs, *how)
    print(text)
    if asked.output is not None:
        asked.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
