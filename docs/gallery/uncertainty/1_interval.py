"""How sure is it?

The standard deviation of the intensity at each place. Intervals and quantiles are in the rasters and under the cursor.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg", land="sample_data/netherlands_land.gpkg", cell_size=5000
)
posterior.plot(variable="sd")
