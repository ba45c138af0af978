"""What if?

The ratio of the map to the same map with half of the green space, from one fit: uncertainty that both share counts
once.
"""

import geobgp

posterior = geobgp.map_intensity(
    "sample_data/tick_bites_simulated.gpkg",
    land="sample_data/netherlands_land.gpkg",
    covariates={"green": "sample_data/covariate_green_space.tif"},
    fill_missing="mean",
    cell_size=5000,
)
bare = posterior.what_if({"green": 0.1})
bare.versus(posterior, names=("little green", "today")).plot()
