"""Events over time

All periods are one model: each year's map borrows from the years before and after it.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/burkitt_west_nile_points.csv",
    land="sample_data/burkitt_west_nile_land.gpkg",
    crs="local",
    easting="easting_km",
    northing="northing_km",
    time="date",
    every="year",
    cell_size=6,
    m=192,
)
posterior.plot(periods=range(0, 15, 3), columns=3)
