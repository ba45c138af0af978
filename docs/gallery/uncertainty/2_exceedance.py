"""Probability of exceeding a threshold

The probability that the intensity exceeds 0.2 per km², place by place.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg", land="sample_data/netherlands_land.gpkg", cell_size=5000
)
posterior.plot(threshold=0.2)
