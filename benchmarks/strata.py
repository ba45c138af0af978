"""Many strata on the reference domain: `map_strata` against a plain loop of `map_intensity`.

Run ``python benchmarks/strata.py [--strata 200] [--jobs 2] [--loop 10]``. The strata are simulated from different
fields, with 20 to 400 points each. The loop is run for some of them and taken to go on like that; it has the same cells
and the same features, which it finds in the cache.

With ``--parts 8 40`` it is asked instead what lengthscale and sd random parts of one pattern are pooled at, beside
those of the whole: the sample's bites, and draws from the prior itself.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import warnings
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from geobgp import Domain, FullRank, Matern, map_intensity, map_strata

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"
LAND, WATER = str(SAMPLE / "netherlands_land.gpkg"), str(SAMPLE / "netherlands_water.gpkg")


def simulated(strata: int) -> pd.DataFrame:
    """Return points of so many strata, each with a field of its own."""
    rng = np.random.default_rng(1)
    domain = Domain.from_polygons(LAND, water=WATER, cell_size=3000)
    fields = FullRank(domain).sample_prior(Matern(1.0, 20_000.0, 1.0), strata, rng, "even")
    tables = []
    for k, field in enumerate(fields):
        weight = domain.node_areas * np.exp(field)
        n = int(np.exp(rng.uniform(np.log(20), np.log(400))))
        node = rng.choice(domain.n_nodes, n, p=weight / weight.sum())
        coords = domain.node_points[node] + rng.uniform(-500, 500, (n, 2))
        tables.append(pd.DataFrame(coords, columns=["easting", "northing"]).assign(stratum=f"stratum {k:03d}"))
    return pd.concat(tables, ignore_index=True)


def of_parts(numbers: list[int], seeds: int) -> Table:
    """Return what random parts of one pattern are pooled at: so many parts, so many draws from the prior."""
    table = Table("points", "permeability", "kernel", "whole", *(f"{n} parts" for n in numbers))
    domain = Domain.from_polygons(LAND, water=WATER, cell_size=10_000)
    told = {"water": WATER, "cell_size": 10_000.0, "crs": domain.crs, "m": "full", "n_jobs": 1}
    bites = gpd.read_file(SAMPLE / "tick_bites_simulated.gpkg").to_crs(domain.crs)
    patterns = {"bites": [np.column_stack([bites.geometry.x, bites.geometry.y])]}
    for permeability in (0.0, 1.0):
        fields = FullRank(domain, permeability=permeability).sample_prior(
            Matern(1.0, 40_000.0, 1.2), seeds, np.random.default_rng(1), "even"
        )
        patterns["draws from the prior"] = [_points(domain, f, len(bites), k) for k, f in enumerate(fields)]
        for (name, several), nu in itertools.product(patterns.items(), (1.0, 2.0)):
            if nu == 2.0 and name != "bites":
                continue
            found = []
            for coords, n in itertools.product(several, numbers):
                frame = pd.DataFrame(coords, columns=["easting", "northing"])
                frame["part"] = np.random.default_rng(n).integers(0, n, len(frame))
                more = {"permeability": permeability, "kernel": Matern(nu), "points_crs": domain.crs}
                strata = map_strata(frame, LAND, "part", pool=True, **more, **told)
                found.append([strata.pooled.fit.hyper_mean[:2],
                              [strata.prior.log_lengthscale[0], strata.prior.log_sd[0]]])  # fmt: skip
            # The mean of the logarithms over the patterns.
            mean = np.exp(np.mean(np.reshape(found, (len(several), len(numbers), 2, 2)), axis=0))
            words = [f"{length / 1e3:.0f} km, {sd:.2f}" for length, sd in [mean[0, 0], *mean[:, 1]]]
            table.add_row(f"{name} ({len(several)})", f"{permeability:g}", f"Matern {nu:g}", *words)
    return table


def _points(domain: Domain, field: np.ndarray, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weight = domain.node_areas * np.exp(field)
    return domain.node_points[rng.choice(domain.n_nodes, n, p=weight / weight.sum())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strata", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--loop", type=int, default=10)
    parser.add_argument("--priors", nargs="+", default=["256", "full"])
    parser.add_argument("--no-pool", action="store_true")
    parser.add_argument("--parts", type=int, nargs="+")
    parser.add_argument("--draws", type=int, default=6)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.parts:
        Console(width=120).print(of_parts(arguments.parts, arguments.draws))
        return
    points = simulated(arguments.strata)
    crs = Domain.from_polygons(LAND, water=WATER, cell_size=3000).crs
    told = {"water": WATER, "cell_size": 1500.0, "permeability": 0.0, "crs": crs, "points_crs": crs}
    table = Table("prior", "way", "seconds", "seconds per stratum", "against the loop")
    for prior in arguments.priors:
        m = int(prior) if prior.isdigit() else prior
        names = sorted(points["stratum"].unique())
        map_intensity(points, LAND, m=m, **told)  # fills the cache of features
        begin = time.perf_counter()
        for name in names[: arguments.loop]:
            map_intensity(points[points["stratum"] == name], LAND, m=m, **told)
        each = (time.perf_counter() - begin) / arguments.loop
        table.add_row(
            str(m), f"loop ({arguments.loop} of {len(names)})", f"{each * len(names):.0f}", f"{each:.2f}", "1.00"
        )
        ways = (("free", {}), ("pooled", {"pool": True}))
        for way, more in ways[:1] if arguments.no_pool or m == "full" else ways:
            begin = time.perf_counter()
            found = map_strata(points, LAND, "stratum", n_jobs=arguments.jobs, m=m, **more, **told)
            seconds = time.perf_counter() - begin
            assert len(found) == len(names)
            ratio = f"{each * len(names) / seconds:.2f}"
            table.add_row(
                str(m),
                f"map_strata, {way}, {arguments.jobs} processes",
                f"{seconds:.0f}",
                f"{seconds / len(names):.2f}",
                ratio,
            )
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    Console(width=120).print(f"{arguments.strata} strata, {len(points):,} points, {load}", table)


if __name__ == "__main__":
    main()
