"""Distance from a source

Deaths by the walking distance to the Broad Street pump, along the streets of Soho.
"""

import geopandas as gpd

import geobgp

streets = gpd.read_file("sample_data/snow_soho_streets.gpkg")
window = gpd.read_file("sample_data/snow_soho_window.gpkg").to_crs(streets.crs)
pumps = gpd.read_file("sample_data/snow_soho_pumps.gpkg")
along = streets.buffer(12).union_all().intersection(window.union_all())

posterior = geobgp.map_intensity(
    "sample_data/snow_soho_points.csv",
    land=gpd.GeoSeries([along], crs=streets.crs),
    weights="deaths",
    points_crs="EPSG:27700",
    covariates={"distance": geobgp.Smooth(geobgp.Distance(pumps[pumps["id"] == 8]))},
    likelihood="negative-binomial",
    cell_size=15,
    m="full",
)
posterior.effect_plot("distance")
