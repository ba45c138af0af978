"""Harmonic features

The eigenfunctions of the Laplacian on the land: the vibrations of a drum that has the shape of the Netherlands.
"""

import geobgp

domain = geobgp.Domain.from_polygons(
    "sample_data/netherlands_land.gpkg", water="sample_data/netherlands_water.gpkg", cell_size=5000
)
geobgp.HarmonicBasis.compute(domain, m=32).plot(12)
