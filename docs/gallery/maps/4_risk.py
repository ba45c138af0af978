"""Cases and controls

Controls stand for the population. The relative risk is adjusted for age, and the lines enclose where it is raised
or lowered with a probability of 97.5 %.
"""

import geopandas as gpd
import numpy as np
import shapely

import geobgp

rng = np.random.default_rng(4)
land = gpd.GeoSeries([shapely.box(0, 0, 40_000, 30_000)], crs=32632)
homes = rng.uniform((0, 0), (40_000, 30_000), (3000, 2))
age = rng.integers(20, 80, len(homes))
source = ((homes - (12_000, 15_000)) ** 2).sum(axis=1)
odds = 0.08 * (1 + 2.5 * np.exp(-source / (2 * 5_000**2))) * np.exp(0.02 * (age - 50))
people = gpd.GeoDataFrame({"age": age, "ill": rng.random(len(homes)) < odds}, geometry=shapely.points(homes), crs=32632)

risk = geobgp.map_risk(people, land=land, status="ill", confounders=["age"], cell_size=1_000)
ax = risk.plot()
risk.tolerance_contours().boundary.plot(ax=ax, color="black")
