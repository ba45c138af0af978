"""Points with a weight

John Snow's map of the cholera of 1854: one row for each address, and the deaths there in a column.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/snow_soho_points.csv",
    land="sample_data/snow_soho_window.gpkg",
    weights="deaths",
    points_crs="EPSG:27700",
    cell_size=20,
    title="Deaths from cholera, Soho 1854",
)
posterior.plot()
