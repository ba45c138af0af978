"""Where does it rise?

The change per year at each place, as the slope of a line through the log-intensities.
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
change = 100 * posterior.trend()["change"].drop_vars("spatial_ref")
change.plot(cmap="RdBu_r", cbar_kwargs={"label": "change, % per year"}).axes.set_aspect("equal")
