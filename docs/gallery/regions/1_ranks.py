"""Rank the regions

Each province with its interval, in order of its rate. Colours mark those above or below the average with a
probability of 95 %.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/disease_cases_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    exposure="sample_data/population_netherlands.tif",
    units="per 100,000",
    cell_size=5000,
    m="full",
)
posterior.plot_ranks("sample_data/netherlands_provinces.gpkg", by="name")
