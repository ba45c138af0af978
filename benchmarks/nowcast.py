"""Nowcasts against what was known in the end: intervals and scores by lag, beside three simpler ways.

Outbreaks on a square island: a hump that moves, over an even background, growing through to the end or past its peak,
with weeks that vary more than the model's level does by itself. Delays are geometric, with a mean of 1 or 3 weeks. What
is reported after the last week is hidden, and the final numbers of nine regions in the last five weeks are predicted:

- nowcast: ``map_intensity(..., reported=...)``
- ignoring: the same map of what is reported so far
- dropping: the map without the incomplete weeks, which are forecast
- correcting: the number of each region and week over the share that is known of that week, with the negative binomial
  spread of a number of which a known share is seen

Run with ``python benchmarks/nowcast.py [data sets]``; it writes benchmarks/results/nowcast.md.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import shapely
from scipy.stats import nbinom, poisson

from geobgp import map_intensity
from geobgp.data.delays import read_reports
from geobgp.data.periods import Periods
from geobgp.land.regions import read_regions
from geobgp.totals import region_draws

OUT = Path(__file__).parent / "results" / "nowcast.md"
SIZE, WEEKS, LAGS, DRAWS = 30.0, 26, 5, 400
START = np.datetime64("2020-01-06")
DAY = np.timedelta64(1, "D")
AS_OF = START + (7 * WEEKS - 1) * DAY
SETTINGS = [(mean, how) for mean in (1, 3) for how in ("growing", "falling")]
WAYS = ("nowcast", "ignoring", "dropping", "correcting")
LAND = shapely.box(0, 0, SIZE, SIZE)
REGIONS = [shapely.box(a, b, a + 10, b + 10) for a in (0, 10, 20) for b in (0, 10, 20)]
HOW = {
    "crs": "local", "time": "onset", "every": "week", "cell_size": 2.0, "m": 24, "dynamics": "separable",
    "permeability": 0, "max_seconds": 30, "cache": False,
}  # fmt: skip


def simulate(rng: np.random.Generator, mean: int, how: str) -> pd.DataFrame:
    """Return all events, with the day of each and that of its report."""
    week = np.arange(WEEKS)
    growth = rng.uniform(1.1, 1.25)
    peak = WEEKS if how == "growing" else WEEKS - rng.integers(4, 8)
    shape = np.minimum(week, peak) - np.maximum(week - peak, 0)
    level = rng.uniform(80, 250) * growth ** (shape - shape.max()) * np.exp(rng.normal(0, 0.15, WEEKS))
    centre, drift = rng.uniform(8, 22, 2), rng.normal(0, 0.3, 2)
    parts = []
    for t, n in enumerate(rng.poisson(level)):
        hump = centre + drift * t + rng.normal(0, 3.5, (n, 2))
        where = np.where(rng.uniform(size=(n, 1)) < 0.6, hump, rng.uniform(0, SIZE, (n, 2)))
        parts.append(np.column_stack([where, 7 * t + rng.integers(0, 7, n)]))
    rows = np.concatenate(parts)
    rows = rows[(rows[:, :2] > 0).all(axis=1) & (rows[:, :2] < SIZE).all(axis=1)]
    day = rows[:, 2].astype(int)
    delay = rng.geometric(1 / (7 * mean + 1), len(rows)) - 1
    table = {"easting": rows[:, 0], "northing": rows[:, 1], "onset": START + day, "reported": START + day + delay}
    return pd.DataFrame(table)


def counted(table: pd.DataFrame) -> np.ndarray:
    """Return events by lag (0: the last week) and region."""
    week = ((table["onset"].to_numpy() - START) / np.timedelta64(7, "D")).astype(int)
    region = 3 * (table["easting"] // 10).astype(int) + (table["northing"] // 10).astype(int)
    out = np.zeros((WEEKS, len(REGIONS)))
    np.add.at(out, (week, region), 1)
    return out[::-1][:LAGS]


def mixture(means: np.ndarray, most: int) -> np.ndarray:
    """Return the probabilities of 0, 1, ... events about draws of means (draws, lags, regions)."""
    return poisson.pmf(np.arange(most)[:, None, None, None], np.maximum(means, 1e-9)).mean(axis=1)


def predicted(table: pd.DataFrame, most: int) -> dict[str, np.ndarray]:
    """Return the probabilities of final numbers (numbers, lags, regions) in each way."""
    known = table[table["reported"] <= AS_OF]
    seen = counted(known)
    now = map_intensity(table, LAND, reported="reported", as_of=str(AS_OF), **HOW)
    inside = now._within(read_regions(REGIONS, now.domain))
    final = region_draws(now, inside, DRAWS, 1, reported="final")
    rest = np.maximum(final - region_draws(now, inside, DRAWS, 1, reported=True), 0)[:, ::-1][:, :LAGS]
    added = mixture(rest, most)
    out = {"nowcast": np.zeros_like(added)}
    for lag, region in np.ndindex(*seen.shape):
        n = int(seen[lag, region])
        out["nowcast"][n:, lag, region] = added[: most - n, lag, region]
    span = (str(START), str(AS_OF))
    plain = map_intensity(known, LAND, between=span, **HOW)
    out["ignoring"] = mixture(region_draws(plain, inside, DRAWS, 1)[:, ::-1][:, :LAGS], most)
    n_late = max(int(now.nowcast.sum()), LAGS)
    early = known[known["onset"] < START + 7 * (WEEKS - n_late) * DAY]
    before = map_intensity(early, LAND, between=(str(START), str(AS_OF - 7 * n_late * DAY)), **HOW)
    ahead = region_draws(before.forecast(n_late), inside, DRAWS, 1)
    out["dropping"] = mixture(ahead[:, ::-1][:, :LAGS], most)
    weeks = Periods.calendar("week", *span)
    share = read_reports(table, time="onset", reported="reported", as_of=str(AS_OF)).over(weeks).share[0, ::-1][:LAGS]
    numbers = np.arange(most)[:, None, None] - seen
    out["correcting"] = nbinom.pmf(numbers, seen + 0.5, share[:, None])
    return out


def judged(chances: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return coverage of 90 %, log score (less is better) and CRPS, by lag and region."""
    total = np.cumsum(chances, axis=0)
    at = truth.astype(int)[None]
    p = np.take_along_axis(chances, at, 0)[0]
    upper = np.take_along_axis(total, at, 0)[0]
    pit = upper - rng.uniform(size=p.shape) * p
    low, high = ((total < q).sum(axis=0) for q in (0.05, 0.95))
    step = np.arange(len(total))[:, None, None] >= at
    return {
        "held": (low <= truth) & (truth <= high),
        "pit": (pit >= 0.05) & (pit <= 0.95),
        "log": -np.log(np.maximum(p, 1e-12)),
        "crps": ((total - step) ** 2).sum(axis=0),
    }


def main(n: int) -> None:
    """Run all data sets and write the table."""
    found: dict[tuple[int, str], dict[str, list[dict[str, np.ndarray]]]] = {}
    for k in range(n):
        mean, how = SETTINGS[k % len(SETTINGS)]
        rng = np.random.default_rng([23, k])
        table = simulate(rng, mean, how)
        truth = counted(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chances = predicted(table, int(4 * truth.max() + 200))
        for way, pmf in chances.items():
            found.setdefault((mean, how), {}).setdefault(way, []).append(judged(pmf, truth, rng))
        if k % 4 == 3 or k == n - 1:
            OUT.write_text(report(found, k + 1), encoding="utf-8")
            print(k + 1, flush=True)


def report(found: dict, n: int) -> str:
    """Return the tables."""
    everything = {way: [one for setting in found.values() for one in setting[way]] for way in WAYS}
    lines = [
        "# Nowcasts of events that are reported late", "",
        f"{n} simulated outbreaks of {WEEKS} weeks, nine regions, lags 0 to {LAGS - 1} (`benchmarks/nowcast.py`).", "",
        "## Share of final numbers within 90 % intervals of the nowcast", "",
        "| delays | outbreak | " + " | ".join(f"lag {lag}" for lag in range(LAGS)) + " | all |",
        "|---|---|" + "---|" * (LAGS + 1),
    ]  # fmt: skip

    def row(results: list, key: str) -> str:
        by_lag = np.mean([one[key] for one in results], axis=(0, 2))
        return " | ".join(f"{100 * v:.0f} %" for v in (*by_lag, by_lag.mean()))

    for (mean, how), ways in sorted(found.items()):
        lines.append(f"| mean {mean} week{'s' if mean > 1 else ''} | {how} | {row(ways['nowcast'], 'pit')} |")
    lines += [f"| all | all | {row(everything['nowcast'], 'pit')} |"]
    lines += [f"| all, ends of the intervals included | all | {row(everything['nowcast'], 'held')} |", ""]
    for key, title in (("crps", "CRPS (events; less is better)"), ("log", "Log score (nats; less is better)")):
        head = "| delays | outbreak | " + " | ".join(WAYS) + " |"
        lines += [f"## {title}", "", head, "|---|---|" + "---|" * len(WAYS)]
        for (mean, how), ways in sorted(found.items()):
            scores = " | ".join(f"{np.mean([one[key] for one in ways[way]]):.2f}" for way in WAYS)
            lines.append(f"| mean {mean} week{'s' if mean > 1 else ''} | {how} | {scores} |")
        scores = " | ".join(f"{np.mean([one[key] for one in everything[way]]):.2f}" for way in WAYS)
        lines.append(f"| all | all | {scores} |")
        for lag in range(LAGS):
            scores = " | ".join(f"{np.mean([one[key][lag] for one in everything[way]]):.2f}" for way in WAYS)
            lines.append(f"| all | lag {lag} | {scores} |")
        lines.append("")
    head = "| way | " + " | ".join(f"lag {lag}" for lag in range(LAGS)) + " | all |"
    lines += ["## Share within 90 % intervals, other ways", "", head, "|---|" + "---|" * (LAGS + 1)]
    lines += [f"| {way} | {row(everything[way], 'pit')} |" for way in WAYS[1:]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
