"""Level and forecast

What was observed, what the model expects in each year, and two years ahead.
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
posterior.plot_level(forecast=posterior.forecast(2))
