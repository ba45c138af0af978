"""Simulate tick bites in the Netherlands from a known intensity: tick_bites_simulated.gpkg.

The real reports are not public. These points are drawn from the formula in `true_intensity`, which is made up
so that the map looks like the real thing: many in the dunes along the North Sea and on the forested sand
soils, few in the polders. Run ``python sample_data/make_tick_bites.py`` to write the file anew; the points
are the same on every run.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import geopandas as gpd
import numpy as np
import shapely

HERE = Path(__file__).resolve().parent
#: Number of points: that of the reports in Solin & Kok (2019). The total is fixed, the places are random.
N_POINTS = 4446
SEED = 20190417
#: Events per km² where the relative intensity is one: with it the dry land expects N_POINTS.
SCALE = 0.5315
#: Relative intensity everywhere, and on the shore of the North Sea; width of the dunes in km.
BACKGROUND, DUNES, DUNE_WIDTH = 0.06, 1.0, 3.0
#: Forested sand soils: longitude, latitude, relative height, widths in km along and across, direction of the
#: first in degrees from east towards north.
FORESTS = (
    (5.85, 52.20, 1.00, 20.0, 13.0, 80.0),  # Veluwe
    (5.37, 52.08, 0.90, 17.0, 4.5, -48.0),  # Utrechtse Heuvelrug and Gooi
    (6.55, 52.86, 0.55, 20.0, 15.0, 60.0),  # Drenthe
    (6.20, 53.08, 0.25, 12.0, 9.0, 0.0),  # Friese Wouden
    (6.42, 52.33, 0.60, 9.0, 4.0, 85.0),  # Sallandse Heuvelrug
    (6.75, 52.28, 0.40, 14.0, 12.0, 0.0),  # Twente
    (6.45, 52.03, 0.40, 16.0, 12.0, 0.0),  # Achterhoek
    (5.35, 51.44, 0.45, 28.0, 11.0, 5.0),  # Kempen and the middle of Brabant
    (4.50, 51.50, 0.40, 12.0, 7.0, 0.0),  # the west of Brabant
    (5.92, 51.80, 0.50, 7.0, 5.0, -60.0),  # Rijk van Nijmegen
    (6.10, 51.50, 0.45, 18.0, 6.0, 80.0),  # Maasduinen and the north of Limburg
    (5.90, 50.83, 0.40, 9.0, 7.0, 0.0),  # the south of Limburg
)
#: The shore of the North Sea from Cadzand to Rottumeroog: longitude, latitude.
COAST = (
    (3.38, 51.38),
    (3.44, 51.53),
    (3.51, 51.58),
    (3.68, 51.70),
    (3.87, 51.82),
    (4.11, 51.98),
    (4.27, 52.11),
    (4.39, 52.20),
    (4.53, 52.37),
    (4.57, 52.46),
    (4.62, 52.62),
    (4.72, 52.95),
    (4.85, 53.18),
    (5.02, 53.28),
    (5.22, 53.39),
    (5.50, 53.44),
    (5.75, 53.46),
    (6.20, 53.49),
    (6.50, 53.54),
)


def plane(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return km east and north of (5.3, 52.2), with the size of a degree there."""
    east = (np.asarray(longitude, float) - 5.3) * 68.36
    north = (np.asarray(latitude, float) - 52.2) * 111.26
    return east, north


def distance_to_sea(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the distance in km to the line `COAST`."""
    east, north = plane(longitude, latitude)
    vertices = np.column_stack(plane(*np.array(COAST).T))
    best = np.full(np.shape(east), np.inf)
    for (e0, n0), (e1, n1) in pairwise(vertices):
        de, dn = e1 - e0, n1 - n0
        along = np.clip(((east - e0) * de + (north - n0) * dn) / (de**2 + dn**2), 0.0, 1.0)
        best = np.minimum(best, np.hypot(east - e0 - along * de, north - n0 - along * dn))
    return best


def forest(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the sum of the bumps `FORESTS`."""
    east, north = plane(longitude, latitude)
    total = np.zeros(np.shape(east))
    for lon, lat, height, along, across, direction in FORESTS:
        e0, n0 = plane(lon, lat)
        angle = np.radians(direction)
        s = (east - e0) * np.cos(angle) + (north - n0) * np.sin(angle)
        t = (north - n0) * np.cos(angle) - (east - e0) * np.sin(angle)
        total += height * np.exp(-0.5 * ((s / along) ** 2 + (t / across) ** 2))
    return total


def true_intensity(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the intensity that the points were drawn from, in events per km² (it is not cut at the shore).

    ``SCALE * (BACKGROUND + DUNES * exp(-0.5 * (distance_to_sea / DUNE_WIDTH)**2) + forest)``
    """
    dunes = DUNES * np.exp(-0.5 * (distance_to_sea(longitude, latitude) / DUNE_WIDTH) ** 2)
    return SCALE * (BACKGROUND + dunes + forest(longitude, latitude))


def square_degree(latitude: np.ndarray) -> np.ndarray:
    """Return km² per square degree on the WGS 84 ellipsoid."""
    a, e2 = 6378.137, 0.00669437999014
    phi = np.radians(latitude)
    return np.radians(1.0) ** 2 * a**2 * (1 - e2) * np.cos(phi) / (1 - e2 * np.sin(phi) ** 2) ** 2


def dry_land() -> shapely.Geometry:
    """Return the land of the sample minus its water, in longitude and latitude."""
    land = gpd.read_file(HERE / "netherlands_land.gpkg").union_all()
    dry = land - gpd.read_file(HERE / "netherlands_water.gpkg").union_all()
    shapely.prepare(dry)
    return dry


def simulate(n: int = N_POINTS, seed: int = SEED) -> np.ndarray:
    """Return longitudes and latitudes of n points, rounded to a millionth of a degree (0.1 m)."""
    rng = np.random.default_rng(seed)
    dry = dry_land()
    west, south, east, north = dry.bounds
    ceiling = 1.3 * SCALE * float(square_degree(south))
    found: list[np.ndarray] = []
    while sum(map(len, found)) < n:
        u = rng.random((100_000, 3))
        places = np.array([west, south]) + np.array([east - west, north - south]) * u[:, :2]
        places = np.round(places, 6)
        density = true_intensity(*places.T) * square_degree(places[:, 1])
        if density.max() > ceiling:
            raise ValueError("the ceiling of the rejection sampling is too low")
        places = places[u[:, 2] * ceiling < density]
        found.append(places[shapely.contains_xy(dry, places[:, 0], places[:, 1])])
    return np.concatenate(found)[:n]


def write(places: np.ndarray, path: Path, **columns: np.ndarray) -> None:
    """Write points as a GeoPackage in EPSG:4326, with a fixed date inside so that the file stays the same."""
    os.environ["OGR_CURRENT_DATE"] = "2019-04-17T00:00:00.000Z"
    points = gpd.points_from_xy(places[:, 0], places[:, 1])
    frame = gpd.GeoDataFrame(columns, geometry=points, crs="EPSG:4326")
    path.unlink(missing_ok=True)
    frame.to_file(path, driver="GPKG", layer=path.stem, SPATIAL_INDEX="NO")


if __name__ == "__main__":
    write(simulate(), HERE / "tick_bites_simulated.gpkg")
