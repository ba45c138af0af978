"""A covariate as a curve

How the prevalence of antibodies rises with green space, with everything else as it is.
"""

import geobgp

posterior = geobgp.map_prevalence(
    "sample_data/survey_antibodies_simulated.csv",
    land="sample_data/netherlands_land.gpkg",
    positive="positive",
    tested="tested",
    covariates={"green space": geobgp.Smooth("sample_data/covariate_green_space.tif")},
    fill_missing="mean",
    cell_size=8000,
    m=64,
    permeability=0,
)
posterior.effect_plot("green space")
