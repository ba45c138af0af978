"""Maps in time: how a fit grows with the number of periods, and what it gains on outbreaks that are not from our prior.

python benchmarks/time.py            # all of it
python benchmarks/time.py growth     # 24, 120 and 520 months on 10,000 nodes
python benchmarks/time.py outbreaks  # held-out scores and forecasts
python benchmarks/time.py provinces  # twelve areas over 52 weeks
python benchmarks/time.py sparse [BEFORE] [DISTRICTS WEEKS SECONDS]  # most counts zero, and limits of time

BEFORE is a checkout of another version, which fits the same data in turn. Limits of the part `sparse` are in seconds
of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

if "sparse-one" in sys.argv:  # before anyone has asked for the clock
    time.perf_counter = time.process_time

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from tables import keep, machine, peak_memory, table

from geobgp import LGCP, Domain, HarmonicBasis, Matern, map_intensity
from geobgp.inference.chain_fit import fit_chain, node_chain, setting_of
from geobgp.land.regions import area_shares

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"

#: Events of a month, on average.
EVENTS = 250.0
SIDE = 100
COUNTS = (24, 120, 520)


def land(side: int, cell: float = 1.0) -> Domain:
    return Domain.from_polygons(shapely.box(0, 0, side * cell, side * cell), cell_size=cell, crs="local")


def outbreak(domain: Domain, n_periods: int, events: float, seed: int) -> np.ndarray:
    """Return expected events: a bump that travels, one that stays, a floor, and a season; not from our prior."""
    rng = np.random.default_rng(1000 + seed)
    x, y = ((domain.node_points - domain.node_points.min(axis=0)) / np.ptp(domain.node_points, axis=0)).T
    phase, width, place = rng.uniform(0, 6), rng.uniform(0.06, 0.1), rng.uniform(0.2, 0.8, 2)
    out = []
    for t in range(n_periods):
        east, north = 0.5 + 0.3 * np.cos(t / 9 + phase), 0.5 + 0.3 * np.sin(t / 9 + phase)
        moving = 4.0 * np.exp(-((x - east) ** 2 + (y - north) ** 2) / (2 * width**2))
        staying = 1.5 * np.exp(-((x - place[0]) ** 2 + (y - place[1]) ** 2) / (2 * 0.12**2))
        season = np.exp(0.5 * np.sin(2 * np.pi * t / 12))
        out.append(domain.node_areas * (0.3 + moving + staying) * season)
    rate = np.array(out)
    return rate * events / rate.sum(axis=1).mean()


def problem_of(basis: HarmonicBasis, counts: np.ndarray):
    domain = basis.domain
    exposure = np.broadcast_to(domain.node_areas, counts.shape)
    centre = float(np.log(counts.sum() / exposure.sum()))
    columns = np.ones((domain.n_nodes, 1))
    setting = setting_of(basis, Matern(1.5), "even", columns, centre, np.ones(len(counts) - 1), 12.0, 10.0)
    return node_chain(setting, counts, exposure)


def one(n_periods: int, m: int = 256) -> dict[str, float]:
    """Fit one case in this process."""
    domain = land(SIDE)
    basis = HarmonicBasis.compute(domain, m)
    rate = outbreak(domain, n_periods, EVENTS, 0)
    counts = np.random.default_rng(0).poisson(rate).astype(float)
    before, begin, cpu = peak_memory(), time.perf_counter(), time.process_time()
    found = fit_chain(problem_of(basis, counts), resume=False)
    mean, variance = found.fit.states[0].node_moments()
    told = domain.node_areas * np.exp(mean + variance / 2)
    return {
        "wall": time.perf_counter() - begin,
        "cpu": time.process_time() - cpu,
        "rounds": found.fit.rounds,
        "converged": found.fit.converged,
        "dynamics": found.dynamics,
        "before": before,
        "peak": peak_memory(),
        "kl": float((rate * np.log(rate / told) - rate + told).sum() / rate.sum()),
        "nodes": domain.n_nodes,
    }


def growth() -> str:
    rows = []
    for n_periods in COUNTS:
        script = [sys.executable, __file__, "one", str(n_periods)]
        said = subprocess.run(script, check=True, capture_output=True, text=True).stdout
        r = json.loads(said.splitlines()[-1])
        per = r["cpu"] / n_periods
        rows.append([
            str(n_periods), f"{r['wall']:.0f}", f"{r['cpu']:.0f}", f"{per:.2f}", str(r["rounds"]), r["dynamics"],
            f"{r['peak']:.2f}", f"{r['kl']:.4f}",
        ])  # fmt: skip
        print(rows[-1], flush=True)
    head = ["months", "wall s", "CPU s", "CPU s a month", "rounds", "dynamics", "peak GB", "KL to truth"]
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    return f"""## Growth

{SIDE**2:,} nodes, 256 features, about {EVENTS:g} events a month, hyperparameters and dynamics learned.
Threads: {threads}; load when it ended: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. Rounds are those with all
features.

{table(head, rows)}
"""


def outbreaks(seeds: int = 8, n_periods: int = 36, ahead: int = 3) -> str:
    """Score a fresh draw under each way, in nats per event; and forecasts of regions' counts."""
    domain = land(40)
    basis = HarmonicBasis.compute(domain, 150)
    x, y = (domain.node_points / 10.0).astype(int).T
    region = np.eye(16)[np.minimum(x, 3) * 4 + np.minimum(y, 3)].T
    scores, inside, first = [], [], []
    for seed in range(seeds):
        rate = outbreak(domain, n_periods + ahead, 120.0, seed)
        rng = np.random.default_rng(seed)
        counts, fresh = (rng.poisson(rate).astype(float) for _ in range(2))
        seen, held = counts[:n_periods], fresh[:n_periods]

        def score(mean: np.ndarray, variance: np.ndarray, held: np.ndarray = held) -> float:
            told = domain.node_areas * np.exp(mean + variance / 2)
            return float((held * np.log(told) - told).sum() / held.sum())

        found = fit_chain(problem_of(basis, seen), resume=False)
        pooled = LGCP(basis, exposure=n_periods * domain.node_areas).fit(seen.sum(axis=0)).fit.states[0].node_moments()
        share = np.log(np.maximum(n_periods * seen.sum(axis=1) / seen.sum(), 1e-3))[:, None]
        theta = found.fit.states[0]
        kernel = Matern(1.5, lengthscale=theta.lengthscale, sd=theta.sd)
        each = [LGCP(basis, kernel).fit(row).fit.states[0].node_moments() for row in seen]
        scores.append([
            score(*theta.node_moments()),
            score(pooled[0] + share, np.broadcast_to(pooled[1], seen.shape)),
            score(np.array([m for m, _ in each]), np.array([v for _, v in each])),
            score(np.log(rate[:n_periods] / domain.node_areas), 0.0 * seen),
        ])  # fmt: skip
        draws = theta.ahead(ahead).sample_nodes(600, rng)
        expected = (domain.node_areas * np.exp(draws)) @ region.T
        came, drawn = counts[n_periods:] @ region.T, rng.poisson(expected)
        # Counts are whole: where one is among equals is drawn too.
        among = rng.uniform(size=came.shape) * (drawn == came).mean(axis=0)
        rank = (drawn < came).mean(axis=0) + among
        inside.append((rank > 0.05) & (rank < 0.95))
        first.append(found.dynamics)
        print(seed, np.round(scores[-1], 4), inside[-1].mean(axis=1).round(2), found.dynamics, flush=True)
    mean = np.mean(scores, axis=0)
    spread = np.std(np.array(scores) - np.array(scores)[:, :1], axis=0) / np.sqrt(seeds)
    names = ["one model in time", "one pooled map times each period's share", "a map of each period", "the truth"]
    rows = [[n, f"{v:.4f}", f"{v - mean[0]:+.4f} ± {s:.4f}"] for n, v, s in zip(names, mean, spread, strict=True)]
    hit = np.mean(inside, axis=(0, 2))
    ahead_rows = [[str(k + 1), f"{100 * share:.1f} %"] for k, share in enumerate(hit)]
    return f"""## Outbreaks that travel

{seeds} data sets: {n_periods} months, about 120 events each, {domain.n_nodes:,} nodes, 150 features; a Gaussian bump
that travels, one that stays, a season. Log score of a fresh draw, nats per event. Separate maps have the lengthscale
and sd of the model in time.

{table(["way", "score", "against the first"], rows)}

Forecasts: 90 % predictive intervals of the counts of 16 regions, {ahead} months ahead; over all
{100 * np.mean(inside):.1f} % hold what came (ranks among equal counts are drawn).
Diffusive dynamics were chosen in {sum(d == "diffusive" for d in first)} of {seeds}.

{table(["months ahead", "held"], ahead_rows)}
"""


def provinces(seeds: int = 6, n_weeks: int = 52, events: float = 4000.0) -> str:
    """Count events of outbreaks that travel by Dutch province and week, and see what the maps hold of the truth."""
    frame = gpd.read_file(SAMPLE / "netherlands_provinces.gpkg").dissolve("name").reset_index()[["name", "geometry"]]
    weeks = pd.date_range("2020-01-06", periods=n_weeks, freq="7D")
    rows = []
    for seed in range(seeds):
        domain = Domain.from_polygons(
            SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=4000
        )
        rate = outbreak(domain, n_weeks, events / n_weeks, seed)
        owner = np.asarray(area_shares(domain, frame.to_crs(domain.crs)).todense()).argmax(axis=0)
        by_area = np.eye(len(frame))[owner]
        counts = np.random.default_rng(seed).poisson(rate) @ by_area
        table_ = frame.loc[np.tile(np.arange(len(frame)), n_weeks)].assign(
            cases=counts.ravel(), week=np.repeat(weeks, len(frame))
        )
        begin = time.perf_counter()
        found = map_intensity(
            areas=table_, count="cases", land=SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg",
            time="week", every="week", cell_size=4000, permeability=0.0,
        )  # fmt: skip
        took = time.perf_counter() - begin
        draws = found.by_period * np.concatenate(list(found.sample_blocks(400, seed)))
        held = []
        for told, true in ((draws, rate), (draws @ by_area, rate @ by_area)):
            low, high = np.quantile(told, (0.05, 0.95), axis=0)
            held.append(float(np.mean((low <= true) & (true <= high))))
        rows.append([
            str(seed), f"{took:.0f}", str(found.converged), f"{found.lengthscale / 1000:.0f}", f"{found.sd:.2f}",
            found.dynamics, f"{100 * held[1]:.1f} %", f"{100 * held[0]:.1f} %",
        ])  # fmt: skip
        print(rows[-1], flush=True)
    head = ["data set", "seconds", "converged", "km", "sd", "dynamics", "provinces held", "nodes held"]
    return f"""## Provinces

{len(frame)} Dutch provinces over {n_weeks} weeks, about {events:,.0f} events, the outbreaks of the part above; the map
that `map_intensity` makes of the counts on {domain.n_nodes:,} nodes. Shares of 90 % intervals that hold the truth: of a
province's rate in a week, and of a node's rate in a week, of which nothing was counted. Load {os.getloadavg()[0]:.1f}
on {os.cpu_count()} cores when it ended.

{table(head, rows)}
"""


def epidemic(n_districts: int, n_weeks: int, seed: int = 1) -> tuple[gpd.GeoDataFrame, np.ndarray]:
    """Return districts with people, and counts by week of an epidemic that goes round: most are zero, some are tens."""
    rng = np.random.default_rng(seed)
    square, places = shapely.box(0, 0, 100e3, 100e3), rng.uniform(0, 100e3, (n_districts, 2))
    cells = shapely.get_parts(shapely.voronoi_polygons(shapely.MultiPoint(places), extend_to=square))
    shapes = [shapely.intersection(cell, square) for cell in cells]
    people = np.exp(rng.normal(11.5, 0.7, n_districts))
    near = np.array([[shapely.distance(a, b) < 1 for b in shapes] for a in shapes]).astype(float)
    counts = np.zeros((n_weeks, n_districts))
    counts[0] = rng.poisson(0.3, n_districts)
    for t in range(1, n_weeks):
        season = 1 + 0.4 * np.sin(2 * np.pi * t / 52)
        mean = 0.05 * people / people.mean() + 0.7 * counts[t - 1] + 0.03 * (near @ counts[t - 1])
        counts[t] = rng.poisson(np.minimum(season * mean * rng.gamma(1.0, 1.0, n_districts), 80))
    return gpd.GeoDataFrame({"people": people}, geometry=shapes, crs="EPSG:32632"), counts


def sparse_one(n_districts: int, n_weeks: int, seconds: float, likelihood: str, hyper: str) -> dict[str, float]:
    """Map an epidemic in this process, whose clock is the processor's."""
    frame, counts = epidemic(n_districts, n_weeks)
    weeks = pd.date_range("2020-01-06", periods=n_weeks, freq="7D")
    rows = frame.loc[np.tile(np.arange(n_districts), n_weeks)]
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = map_intensity(
            areas=rows.assign(cases=counts.ravel().astype(int), week=np.repeat(weeks, n_districts)), count="cases",
            land=frame[["geometry"]], exposure=frame, exposure_column="people", time="week", every="week",
            likelihood=likelihood, hyper=hyper, max_seconds=seconds, cache=False,
        )  # fmt: skip
    return {
        "cpu": time.process_time() - begin, "elbo": found.elbo, "converged": found.converged, "states":
        len(found.fit.states), "sd": found.sd, "zeros": float((counts == 0).mean()), "most": float(counts.max()),
    }  # fmt: skip


def sparse(before: str = "", n_districts: str = "17", n_weeks: str = "52", seconds: str = "60") -> str:
    """Map the same epidemic by this version and by one before, with a limit of time."""
    rows, r = [], {}
    versions = {"now": str(Path(__file__).resolve().parents[1])} | ({"before": before} if before else {})
    for likelihood, hyper in (("poisson", "map"), ("poisson", "integrate"), ("negative-binomial", "map")):
        for version, folder in versions.items():
            script = [sys.executable, __file__, "sparse-one", n_districts, n_weeks, seconds, likelihood, hyper]
            how: dict = {"check": True, "capture_output": True, "text": True}
            said = subprocess.run(script, env={**os.environ, "PYTHONPATH": folder}, **how).stdout
            r = json.loads(said.splitlines()[-1])
            rows.append([
                likelihood, hyper, version, f"{r['cpu']:.1f}", f"{r['elbo']:.2f}", f"{r['sd']:.2f}",
                str(r["states"]), "yes" if r["converged"] else "no",
            ])  # fmt: skip
            print(rows[-1], flush=True)
    head = ["likelihood", "hyper", "version", "CPU s", "bound", "sd", "states", "converged"]
    return f"""## Sparse counts, and limits of time

{n_districts} districts over {n_weeks} weeks of a simulated epidemic: {100 * r["zeros"]:.0f} % of the counts are zero,
the highest is {r["most"]:.0f}; people as exposure, `max_seconds={seconds}` on the processor's clock. Load
{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores when it ended, which makes seconds of the processor longer too.

{table(head, rows)}
"""


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    if what == "sparse-one":
        number_of = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
        print(json.dumps(sparse_one(*number_of, *sys.argv[5:7])))
        return
    if what == "one":
        print(json.dumps(one(int(sys.argv[2]))))
        return
    parts = {
        "growth": growth, "outbreaks": outbreaks, "provinces": provinces,
        "sparse": lambda: sparse(*sys.argv[2:] if what == "sparse" else ()),
    }  # fmt: skip
    path = Path(__file__).parent / "results" / "time.md"
    made = {name: make() for name, make in parts.items() if what in ("all", name)}
    if what != "all" and path.exists():  # the other part stays as it was
        old = path.read_text(encoding="utf-8").split("\n## ")
        titles = {"growth": "Growth", "outbreaks": "Outbreaks", "provinces": "Provinces", "sparse": "Sparse"}
        made |= {
            name: f"## {text.strip()}\n"
            for name, title in titles.items()
            for text in old[1:]
            if name not in made and text.startswith(title)
        }
    body = "\n".join(made[name] for name in parts if name in made)
    keep("time", f"# Maps in time\n\n{machine()}.\n\n{body}")


if __name__ == "__main__":
    main()
