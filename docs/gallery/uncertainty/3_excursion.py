"""Excursion set

The land that exceeds the threshold everywhere at once, that falls short of it everywhere at once, and the land
between, with a probability of 90 %.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg", land="sample_data/netherlands_land.gpkg", cell_size=5000
)
posterior.excursion(0.2, probability=0.9).plot()
