"""Fit one pattern with another version of geobgp, for coasts.py: arrays from one file, results into another.

    PYTHONPATH=CHECKOUT python benchmarks/before.py CHECKOUT given.npz found.npz

It may use only what that version had as well.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import geopandas as gpd
import numpy as np
import shapely

import geobgp


def main(checkout: str, given: str, found: str) -> None:
    where = Path(geobgp.__file__).resolve().parent.parent
    if where != Path(checkout).resolve():
        raise SystemExit(f"geobgp came from {where}, not from {checkout}.")
    warnings.simplefilter("ignore")
    with np.load(given) as file:
        points, crs, cell_size = file["points"], str(file["crs"]), float(file["cell_size"])
        land = gpd.GeoSeries(shapely.from_wkb([file["land"].tobytes()]), crs=crs)
    places = gpd.GeoSeries(shapely.points(points), crs=crs)
    begin = time.perf_counter()
    posterior = geobgp.map_intensity(places.to_frame("geometry"), land, cell_size=cell_size, crs=crs, cache=False)
    seconds = time.perf_counter() - begin
    nodes = posterior.node_intensity((0.05, 0.95))
    np.savez(
        found,
        median=np.exp(posterior.fit.states[0].node_moments()[0]),
        low=nodes["q05"].to_numpy(),
        high=nodes["q95"].to_numpy(),
        draws=np.asarray(posterior.sample(300, 0)),
        areas=posterior.domain.node_areas,
        seconds=seconds,
        permeability=np.nan,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
