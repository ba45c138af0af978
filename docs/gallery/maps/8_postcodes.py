"""Addresses that are postcodes

Cases are known by town only. Their Voronoi cells are the places of the events, so that no town becomes a false
peak.
"""

import geopandas as gpd
import pandas as pd

import geobgp

towns = pd.read_csv("sample_data/places_netherlands_points.csv").nlargest(150, "population")
towns = gpd.GeoDataFrame(towns, geometry=gpd.points_from_xy(towns["x"], towns["y"]), crs=4326)
cases = gpd.read_file("sample_data/tick_bites_simulated.gpkg")
near = gpd.sjoin_nearest(cases.to_crs(28992), towns.to_crs(28992)[["name", "geometry"]])

posterior = geobgp.map_intensity(
    near.drop_duplicates("geometry")[["name"]],
    land="sample_data/netherlands_land.gpkg",
    places=towns,
    key="name",
    cell_size=5000,
)
posterior.plot()
