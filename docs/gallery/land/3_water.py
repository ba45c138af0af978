"""Does water separate the events?

A simulated bay whose two shores differ. Closed water is chosen by evidence, and the far
shore stays as low as its events are.
"""

import geopandas as gpd
import numpy as np
import shapely

import geobgp

rng = np.random.default_rng(1)
bay = shapely.box(0, 14_000, 34_000, 18_000)
land = gpd.GeoSeries([shapely.box(0, 0, 40_000, 32_000).difference(bay)], crs=32632)
places = rng.uniform((0, 0), (40_000, 32_000), (4000, 2))
rate = np.where(places[:, 1] < 16_000, np.exp(-places[:, 0] / 12_000), 0.05)
cases = gpd.GeoSeries.from_xy(*places[rng.random(4000) < rate].T, crs=32632)

posterior = geobgp.map_intensity(cases[cases.within(land[0])], land, cell_size=1000)
print(posterior.choices["water"])
posterior.plot()
