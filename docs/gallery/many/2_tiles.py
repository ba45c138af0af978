"""Land of any size

Tiles with halos, fitted one by one and blended where they meet, as one Cloud-Optimised GeoTIFF and Zarr store.
"""

import geobgp

tiles = geobgp.map_tiles(
    "sample_data/tick_bites_simulated.gpkg", "sample_data/netherlands_land.gpkg", "tiles/", cell_size=2500, n_jobs=1
)
mosaic = tiles.open()
mosaic["mean"].plot(robust=True).axes.set_aspect("equal")
