"""A map for any browser

One file without any server: values under the cursor, regions, layers, time. (A screenshot.)
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    cell_size=4000,
)
posterior.to_map("map.html", regions="sample_data/netherlands_provinces.gpkg", threshold=0.3, title="Tick bites")
