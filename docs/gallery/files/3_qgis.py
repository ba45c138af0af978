"""A QGIS project

GeoTIFFs with their styles in a project: layers for the mean, the interval and the exceedance. (A screenshot.)
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    cell_size=4000,
)
posterior.to_qgis("ticks/", thresholds=[0.3])
