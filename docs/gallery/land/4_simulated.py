"""Simulated points

Points drawn from a known intensity on land, to try a method before there are data.
"""

import numpy as np

import geobgp

domain = geobgp.Domain.from_polygons(
    "sample_data/netherlands_land.gpkg", water="sample_data/netherlands_water.gpkg", cell_size=5000
)
basis = geobgp.HarmonicBasis.compute(domain, m=128)
kernel = geobgp.Matern(1.5, lengthscale=30_000, sd=1)
rng = np.random.default_rng(3)
relative = np.exp(basis.sample_prior(kernel, 1, rng, scaling="even").ravel())
points = geobgp.simulate_points(domain, 0.05 * relative, rng=rng)
ax = domain.plot(values=relative, label="relative intensity")
points.plot(ax=ax, color="black", markersize=1)
