"""Residuals

Where events differ from the map, beside simulations of the same fit.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg", land="sample_data/netherlands_land.gpkg", cell_size=5000
)
posterior.residuals().plot()
