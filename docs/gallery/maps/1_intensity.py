"""Events per km²

Points and polygons of land and water become a map of the intensity. Cells, water and smoothness are chosen by
evidence.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    cell_size=4000,
)
posterior.plot()
