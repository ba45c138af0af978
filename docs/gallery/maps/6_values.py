"""A measured quantity

Lead in 200 samples of moss, in µg/g: kriging that goes around the water.
"""

import geobgp

posterior = geobgp.map_values(
    "sample_data/measurements_lead_simulated.csv",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    value="lead",
    units="µg/g",
    cell_size=5000,
)
posterior.plot()
