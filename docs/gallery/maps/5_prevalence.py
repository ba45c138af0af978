"""Prevalence from a survey

Positives among those tested at 150 sites. Variation between sites beyond chance is learned (beta-binomial).
"""

import geobgp

posterior = geobgp.map_prevalence(
    "sample_data/survey_antibodies_simulated.csv",
    land="sample_data/netherlands_land.gpkg",
    water="sample_data/netherlands_water.gpkg",
    positive="positive",
    tested="tested",
    cell_size=5000,
    permeability=0,
)
posterior.plot()
