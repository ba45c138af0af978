"""Distance over land

The walking distance to the Broad Street pump: along the streets, not through houses.
"""

import geopandas as gpd

import geobgp

streets = gpd.read_file("sample_data/snow_soho_streets.gpkg")
window = gpd.read_file("sample_data/snow_soho_window.gpkg").to_crs(streets.crs)
pumps = gpd.read_file("sample_data/snow_soho_pumps.gpkg")
along = streets.buffer(12).union_all().intersection(window.union_all())

domain = geobgp.Domain.from_polygons(gpd.GeoSeries([along], crs=streets.crs), cell_size=10)
pump = pumps[pumps["id"] == 8]
ax = domain.plot(values=domain.distance_to(pump), label="metres to the Broad Street pump")
pump.plot(ax=ax, color="black", zorder=3)
