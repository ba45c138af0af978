"""A rate per 100,000 people

With a raster of the population as exposure the map is a rate. Land where nobody lives is hatched.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/disease_cases_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    exposure="sample_data/population_netherlands.tif",
    units="per 100,000",
    cell_size=5000,
    m="full",
)
posterior.plot()
