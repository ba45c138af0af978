"""Variogram

Semivariances of the measurements by distance, with the model that was fitted, its nugget, sill and range.
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
posterior.variogram().plot()
