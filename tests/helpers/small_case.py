"""A small country with a lake, a river and an island, points from a known intensity, and their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from geobgp import Domain, simulate_points

CRS = "EPSG:32631"
WEST, SOUTH = 600_000.0, 5_800_000.0


def land() -> gpd.GeoDataFrame:
    """A mainland of 24 x 16 km and an island of 4 x 4 km east of it."""
    main = shapely.box(WEST, SOUTH, WEST + 24_000, SOUTH + 16_000)
    island = shapely.box(WEST + 26_000, SOUTH + 6_000, WEST + 30_000, SOUTH + 10_000)
    return gpd.GeoDataFrame({"name": ["mainland", "island"]}, geometry=[main, island], crs=CRS)


def water() -> gpd.GeoDataFrame:
    """A lake, and a river of 100 m that cuts the mainland in two."""
    lake = shapely.Point(WEST + 6_000, SOUTH + 5_000).buffer(2_000)
    river = shapely.box(WEST + 11_950, SOUTH - 100, WEST + 12_050, SOUTH + 16_100)
    return gpd.GeoDataFrame(geometry=[lake, river], crs=CRS)


def truth(coords: np.ndarray) -> np.ndarray:
    """Events per km²: high and smooth west of the river, low east of it."""
    x, y = ((coords - [WEST, SOUTH]) / 1000.0).T
    west = 4.0 * np.exp(-0.5 * (((x - 9.0) / 3.0) ** 2 + ((y - 10.0) / 4.0) ** 2)) + 1.0
    return np.where(x < 12.0, west, np.where(x < 25.0, 0.4, 2.0))


def domain(cell_size: float = 500.0) -> Domain:
    return Domain.from_polygons(land(), water=water(), cell_size=cell_size, crs=CRS)


def points(seed: int = 1) -> gpd.GeoDataFrame:
    return simulate_points(domain(), truth, seed)


@dataclass(frozen=True)
class Files:
    """Paths of the case's files, and of files with mistakes in them."""

    folder: Path

    def __getattr__(self, name: str) -> str:
        stem, _, suffix = name.rpartition("_")
        return str(self.folder / f"{stem}.{suffix}")


def write_files(folder: Path) -> Files:
    """Write the case in longitude and latitude, as people have it."""
    shore, lakes, found = (frame.to_crs(4326) for frame in (land(), water(), points()))
    shore.to_file(folder / "land.gpkg")
    lakes.to_file(folder / "water.gpkg")
    found["deaths"] = 1 + np.arange(len(found)) % 3
    found.to_file(folder / "points.gpkg")
    lon, lat = found.geometry.x.to_numpy(), found.geometry.y.to_numpy()
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(lat, lon), crs=4326).to_file(folder / "swapped.gpkg")
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(lon + 20, lat), crs=4326).to_file(folder / "abroad.gpkg")
    found.iloc[:0].to_file(folder / "empty.gpkg")
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("longitude,latitude\n")
    pd.DataFrame({"Coord_X": lon, "Coord_Y": lat, "n": 1}).to_csv(folder / "odd.csv", index=False)
    pd.DataFrame({"lat": lon, "lon": lat}).to_csv(folder / "swapped.csv", index=False)
    metric = points()
    east_north = {"x": metric.geometry.x, "y": metric.geometry.y}
    pd.DataFrame(east_north).to_csv(folder / "metric.csv", index=False)
    (folder / "text.gpkg").write_text("this is no GeoPackage")
    found.to_file(folder / "layers.gpkg", layer="bites")
    found.to_file(folder / "layers.gpkg", layer="others")
    frame = gpd.GeoDataFrame(geometry=found.geometry.to_numpy())
    bare = gpd.GeoDataFrame(geometry=shore.geometry.to_numpy())
    import warnings

    with warnings.catch_warnings():  # pyogrio says that these have no CRS, which is what they are for
        warnings.simplefilter("ignore")
        frame.to_file(folder / "nowhere.gpkg")
        bare.to_file(folder / "bare.gpkg")
    return Files(folder)
