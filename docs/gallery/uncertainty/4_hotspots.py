"""Hot spots

Connected land that exceeds 1.5 times the average rate as a whole, with a probability of 95 %.
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
hot = posterior.hotspots(1.5 * posterior.overall)
posterior.plot(hotspots=hot)
