"""Held-out blocks

Blocks of the land are held out in turn and predicted from the rest: does the map keep its promises?
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg", land="sample_data/netherlands_land.gpkg", cell_size=5000
)
posterior.cross_validate().plot()
