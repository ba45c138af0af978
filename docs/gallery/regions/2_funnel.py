"""Funnel plot

Observed rates of the counties against the range that chance alone would give to so many births.
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
    units="per 1,000",
    cell_size=20_000,
)
posterior.plot_funnel(counties)
