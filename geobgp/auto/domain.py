"""The land of a run: polygons with the CRS that was given for them, and what is told of their domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import shapely

from geobgp.errors import GeometryError
from geobgp.files import read_vector
from geobgp.land.crs import as_crs
from geobgp.land.domain import Domain
from geobgp.land.polygons import CRS_NOTE, Land, land_polygons, read_lines, read_polygons
from geobgp.summary import Choice
from geobgp.text import number


def read_land(
    land: Any,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    *,
    crs: Any = None,
    land_crs: Any = None,
) -> Land:
    """Return land, water, barriers and bridges in one CRS, to be cut into cells of any size.

    Parameters
    ----------
    land, water, barriers, bridges, crs, land_crs
        As for `map_intensity`.
    """
    if land_crs is not None:
        land, water, barriers = (
            _with_crs(source, name, land_crs)
            for name, source in (("land", land), ("water", water), ("barriers", barriers))
        )
        if bridges is not None:  # with their widths
            bridges = read_vector(bridges, "bridges") if isinstance(bridges, (str, Path)) else bridges
            if hasattr(bridges, "set_crs") and bridges.crs is None:
                bridges = bridges.set_crs(as_crs(land_crs, "land_crs"))
    found = land_polygons(land, water, barriers, crs, bridges)
    if not shapely.area(found.geometry) > 0:
        raise GeometryError("land: the polygons enclose no area, so that no cell size can be chosen.")
    return found


def _with_crs(source: Any, name: str, crs: Any) -> Any:
    """Return shapes with the CRS that was given for them where they have none."""
    if source is None:
        return None
    series = (read_lines if name == "barriers" else read_polygons)(source, name)[0]
    return series if series.crs is not None else series.set_crs(as_crs(crs, "land_crs"))


def about_crs(domain: Domain, given: Any) -> Choice:
    """Return which CRS a domain has, and why."""
    found = domain.crs
    if found is None:
        return Choice("local", "given: planar coordinates with no place on Earth")
    code = found.to_authority()
    name = f"{':'.join(code)}, {found.name}" if code else found.name
    if given is not None:
        return Choice(name, "given")
    own = next((note.removeprefix(CRS_NOTE) for note in domain.notes if note.startswith(CRS_NOTE)), "")
    if own == "the land's own":
        return Choice(name, own)
    if own:
        return Choice(name, f"chosen, for {own}")
    if code:
        return Choice(name, "the land lies within this UTM zone")
    return Choice(name, "equal-area around the land, which does not fit one UTM zone")


def side(domain: Domain) -> str:
    """Return the side of a cell, with its unit."""
    return f"{number(domain.cell_size)} {'m' if domain.crs is not None else 'units'}"


def describe(domain: Domain) -> str:
    """Return the area, the number of nodes and of separate parts, in one line."""
    unit, name = domain.area_unit
    area = f"{number(domain.node_areas.sum() / unit)} {name if domain.crs is not None else 'square units'}"
    parts = f", {domain.n_components:,} separate parts" if domain.n_components > 1 else ""
    return f"{area} in {domain.n_nodes:,} nodes of {side(domain)}{parts}"
