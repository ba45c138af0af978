"""Counts by district

Polygons with a number of cases each. The map varies within districts as far as their neighbours support it.
"""

import geopandas as gpd

import geobgp

counties = gpd.read_file("sample_data/north_carolina_sids.gpkg")
posterior = geobgp.map_intensity(
    areas=counties,
    count="sids_1974",
    land=counties,
    exposure=counties,
    exposure_column="births_1974",
    units="relative risk",
    cell_size=10_000,
)
posterior.plot()
