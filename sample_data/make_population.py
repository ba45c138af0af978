"""Make a population raster, a covariate and simulated cases of a disease for the Netherlands.

- population_netherlands.tif: people per cell of 2 km. The towns of GeoNames, each spread by a Gaussian whose
  width grows with the town, over the dry land, and `RURAL` people per km² of land. It is no census.
- covariate_green_space.tif: share of the cell that is forest or dune, made up from the formula of the tick
  bites.
- disease_cases_simulated.gpkg: `N_CASES` cases, drawn in proportion to population times `true_relative_risk`,
  which depends on the green space and has one hotspot. The points are the same on every run.

Run ``python sample_data/make_population.py`` to write the three files anew.
"""

from __future__ import annotations

from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import rasterio
import shapely
from make_tick_bites import HERE, distance_to_sea, dry_land, forest, write
from rasterio.transform import Affine

#: The equal-area grid of the European statistics: cells of 2 km have 4 km² everywhere.
CRS, CELL = "EPSG:3035", 2000.0
#: People per km² of land outside the towns of GeoNames (500 inhabitants or more).
RURAL = 20.0
N_CASES, SEED = 2500, 20080501
#: Log relative risk of full green space, and of the middle of the hotspot (longitude, latitude, width in km).
GREEN_EFFECT, HOTSPOT_EFFECT, HOTSPOT = -1.0, 1.3, (5.60, 51.65, 12.0)


def grid() -> tuple[Affine, tuple[int, int], pyproj.Transformer]:
    """Return transform and shape of the raster, and the way from its plane to longitude and latitude."""
    land = gpd.read_file(HERE / "netherlands_land.gpkg").to_crs(CRS)
    west, south, east, north = land.total_bounds
    west, south = np.floor(west / CELL) * CELL, np.floor(south / CELL) * CELL
    east, north = np.ceil(east / CELL) * CELL, np.ceil(north / CELL) * CELL
    shape = (round((north - south) / CELL), round((east - west) / CELL))
    to_degrees = pyproj.Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    return Affine(CELL, 0.0, west, 0.0, -CELL, north), shape, to_degrees


def places_in_cells(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, cols, side²) longitudes and latitudes of a lattice within every cell."""
    transform, (rows, cols), to_degrees = grid()
    offset = (np.arange(side) + 0.5) / side
    v, u = np.meshgrid(offset, offset, indexing="ij")
    col = np.arange(cols)[None, :, None] + u.ravel()
    row = np.arange(rows)[:, None, None] + v.ravel()
    col, row = np.broadcast_arrays(col, row)
    return to_degrees.transform(transform.c + CELL * col, transform.f - CELL * row)


def population(land_share: np.ndarray) -> np.ndarray:
    """Return people per cell from the towns of GeoNames and a rural background."""
    transform, (rows, cols), _ = grid()
    towns = pd.read_csv(HERE / "places_netherlands_points.csv")
    forward = pyproj.Transformer.from_crs("EPSG:4326", CRS, always_xy=True)
    east, north = forward.transform(towns["x"].to_numpy(), towns["y"].to_numpy())
    centres_e = transform.c + CELL * (np.arange(cols) + 0.5)
    centres_n = transform.f - CELL * (np.arange(rows) + 0.5)
    people = RURAL * (CELL / 1000) ** 2 * land_share
    for e, n, inhabitants in zip(east, north, towns["population"], strict=True):
        width = 900.0 + 600.0 * np.sqrt(inhabitants / 1e5)
        spread = np.exp(-0.5 * ((centres_n - n) / width) ** 2)[:, None] * np.exp(-0.5 * ((centres_e - e) / width) ** 2)
        spread *= land_share
        if spread.sum() > 0:
            people += inhabitants * spread / spread.sum()
    return people


def green_space(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the share of forest and dune, from 0 to 1."""
    dunes = np.exp(-0.5 * (distance_to_sea(longitude, latitude) / 3.0) ** 2)
    return 1 - np.exp(-(0.05 + 0.8 * dunes + 1.1 * forest(longitude, latitude)))


def true_relative_risk(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the risk that the cases were drawn from, relative to no green space and far from the hotspot.

    ``exp(GREEN_EFFECT * green_space + HOTSPOT_EFFECT * exp(-0.5 * (distance to HOTSPOT / its width)**2))``
    """
    lon, lat, width = HOTSPOT
    east, north = (np.asarray(longitude) - lon) * 69.2, (np.asarray(latitude) - lat) * 111.26
    hot = np.exp(-0.5 * (east**2 + north**2) / width**2)
    return np.exp(GREEN_EFFECT * green_space(longitude, latitude) + HOTSPOT_EFFECT * hot)


def cases(people: np.ndarray, dry: shapely.Geometry) -> np.ndarray:
    """Return longitudes and latitudes of cases: a cell by its people and risk, a place on its dry land."""
    rng = np.random.default_rng(SEED)
    transform, (rows, cols), to_degrees = grid()
    col, row = np.meshgrid(np.arange(cols), np.arange(rows))
    middle = to_degrees.transform(transform.c + CELL * (col + 0.5), transform.f - CELL * (row + 0.5))
    share = np.cumsum((people * true_relative_risk(*middle)).ravel())
    cell = np.searchsorted(share, rng.random(N_CASES) * share[-1], side="right")
    found = np.full((N_CASES, 2), np.nan)
    while (todo := np.flatnonzero(np.isnan(found[:, 0]))).size:
        u = rng.random((todo.size, 2))
        east = transform.c + CELL * (cell[todo] % cols + u[:, 0])
        north = transform.f - CELL * (cell[todo] // cols + u[:, 1])
        places = np.round(np.column_stack(to_degrees.transform(east.tolist(), north.tolist())), 6)
        good = shapely.contains_xy(dry, places[:, 0], places[:, 1])
        found[todo[good]] = places[good]
    return found


def write_raster(values: np.ndarray, path: Path, name: str, unit: str) -> None:
    """Write one band as a small GeoTIFF with its name, unit and nodata."""
    transform, (rows, cols), _ = grid()
    profile = {
        "driver": "GTiff",
        "height": rows,
        "width": cols,
        "count": 1,
        "dtype": "float32",
        "crs": CRS,
        "transform": transform,
        "nodata": -9999.0,
        "compress": "deflate",
        "predictor": 3,
    }
    with rasterio.open(path, "w", **profile) as raster:
        raster.write(np.where(np.isnan(values), -9999.0, values).astype("float32"), 1)
        raster.set_band_description(1, name)
        raster.set_band_unit(1, unit)


def make() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return people per cell, green space per cell (both NaN off the land) and the cases."""
    dry = dry_land()
    longitude, latitude = places_in_cells(5)
    inside = shapely.contains_xy(dry, longitude, latitude)
    land_share = inside.mean(axis=2)
    people = np.round(population(land_share), 1)
    green = np.round(green_space(longitude, latitude).mean(axis=2), 3)
    points = cases(people, dry)
    off = land_share == 0
    return np.where(off, np.nan, people), np.where(off, np.nan, green), points


if __name__ == "__main__":
    people, green, points = make()
    write_raster(people, HERE / "population_netherlands.tif", "people", "people per cell of 4 km2")
    write_raster(green, HERE / "covariate_green_space.tif", "green_space", "share of the cell")
    write(points, HERE / "disease_cases_simulated.gpkg")
