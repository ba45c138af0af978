"""Basemaps: online backgrounds by name, and their refusal before any work where there is none of that name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import folium

from geobgp.errors import DataError, option

#: Names that need no key; folium knows more of them, under the names of the list "xyzservices".
KNOWN: Final = (
    "OpenStreetMap", "OpenTopoMap", "CyclOSM", "Esri.WorldTopoMap", "Esri.WorldImagery", "Esri.WorldGrayCanvas",
    "NASAGIBS.BlueMarble", "BasemapAT.grau", "nlmaps.grijs", "SwissFederalGeoportal.NationalMapGrey",
    "USGS.USTopo",
)  # fmt: skip


def basemap_layer(basemap: str | folium.TileLayer) -> folium.TileLayer:
    """Return the layer of a basemap; a name that stands for none is an error with the names that do.

    Parameters
    ----------
    basemap : str or folium.TileLayer
        Such as "OpenStreetMap".

    Examples
    --------
    >>> basemap_layer("OpenStreetMap").tiles
    'https://tile.openstreetmap.org/{z}/{x}/{y}.png'
    >>> basemap_layer("OpenStretMap")
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: No basemap is called 'OpenStretMap'; did you mean 'OpenStreetMap'? ...
    """
    if isinstance(basemap, folium.TileLayer):
        return basemap
    name = str(basemap)
    if "://" in name:
        raise _refused(
            "An address of tiles needs the words of its owners beside the map.",
            basemap,
            "Pass folium.TileLayer(address, attr=...) from Python, or name one of: ",
        )
    try:
        return folium.TileLayer(name, name="Basemap", overlay=True)
    except (ValueError, AttributeError) as error:
        if "oken" in str(error) or "key" in str(error):
            raise _refused(f"The basemap {name!r} needs a key.", basemap, "These need none: ") from error
        close = get_close_matches(name.lower(), [known.lower() for known in KNOWN], n=1)
        meant = [known for known in KNOWN if known.lower() in close]
        ask = f"; did you mean {meant[0]!r}?" if meant else "."
        raise _refused(f"No basemap is called {name!r}{ask}", basemap, "Known are ") from error


def check_basemap(basemap: str | folium.TileLayer | None, *, local: bool = False) -> None:
    """Refuse a basemap that there is not, or that land without a place on Earth cannot lie on."""
    if basemap is None:
        return
    if local:
        raise DataError(
            "A local domain has no place on Earth, so it cannot lie on a basemap.",
            option="basemap",
            found=basemap,
            remedy=f"Leave {option('basemap')} out.",
        )
    basemap_layer(basemap)


def _refused(what: str, found: Any, remedy: str) -> DataError:
    more = f"{remedy}{', '.join(KNOWN)}, and others of folium's."
    return DataError(what, option="basemap", found=found, remedy=more)
