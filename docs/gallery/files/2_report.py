"""A report

What went in, what was dropped, every choice, maps, checks and regions on one page. (A screenshot.)
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    cell_size=4000,
)
posterior.to_report("report.html")
