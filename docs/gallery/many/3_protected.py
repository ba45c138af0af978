"""Small numbers

What is based on fewer than 25 cases is hidden, in every file.
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
posterior.protected(25).plot()
