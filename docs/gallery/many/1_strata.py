"""A map for each group

One map for each species on common cells, features and water; species with few bites borrow from the others.
"""

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np

import geobgp

bites = gpd.read_file("sample_data/tick_bites_simulated.gpkg")
rng = np.random.default_rng(0)
bites["species"] = rng.choice(["ricinus", "hexagonus", "canisuga"], len(bites), p=[0.8, 0.15, 0.05])
strata = geobgp.map_strata(bites, "sample_data/netherlands_land.gpkg", "species", cell_size=8000, pool=True, n_jobs=1)
figure, axes = plt.subplots(1, 3, figsize=(15, 5))
for ax, (name, posterior) in zip(axes, strata.items(), strict=True):
    posterior.plot(ax=ax, title=name)
