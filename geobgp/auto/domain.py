"""The land of a run: polygons with the CRS that was given for them, and cells of the size that was chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import shapely

from geobgp.auto.choices import cell_size_for
from geobgp.errors import GeometryError
from geobgp.files import read_vector
from geobgp.land.crs import as_crs
from geobgp.land.domain import Domain
from geobgp.land.grid import Grid
from geobgp.land.polygons import land_polygons, read_lines, read_polygons
from geobgp.summary import Choice
from geobgp.text import number


def make_domain(
    land: Any,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    *,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    n_points: Callable[[], int | None] = lambda: None,
) -> tuple[Domain, dict[str, Choice]]:
    """Return the domain, and why it has this CRS and this cell size.

    Parameters
    ----------
    land, water, barriers, bridges, cell_size, crs, land_crs, min_coverage
        As for `map_intensity`.
    n_points : callable
        Asked for the number of points, if it is known, where a cell size must be chosen.
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
    why = "given"
    if cell_size is not None:
        domain = Domain.from_polygons(
            land,
            water=water,
            barriers=barriers,
            bridges=bridges,
            cell_size=cell_size,
            crs=crs,
            min_coverage=min_coverage,
        )
    else:
        prepared = land_polygons(land, water, barriers, crs, bridges)
        area = float(shapely.area(prepared.geometry))
        if not area > 0:
            raise GeometryError("land: the polygons enclose no area, so that no cell size can be chosen.")
        cell_size, why = cell_size_for(area, n_points(), prepared.crs)
        west, south, east, north = shapely.bounds(prepared.geometry).tolist()
        domain = Domain.from_geometry(
            prepared.geometry,
            Grid.from_bounds((west, south, east, north), cell_size, prepared.crs),
            barriers=prepared.barriers,
            bridges=prepared.bridges,
            water_geometry=prepared.water,
            min_coverage=min_coverage,
            notes=tuple(prepared.notes),
        )
    return domain, {"CRS": _about_crs(domain, crs), "cell size": Choice(_side(domain), why)}


def _with_crs(source: Any, name: str, crs: Any) -> Any:
    """Return shapes with the CRS that was given for them where they have none."""
    if source is None:
        return None
    series = (read_lines if name == "barriers" else read_polygons)(source, name)[0]
    return series if series.crs is not None else series.set_crs(as_crs(crs, "land_crs"))


def _about_crs(domain: Domain, given: Any) -> Choice:
    found = domain.crs
    if found is None:
        return Choice("local", "given: planar coordinates with no place on Earth")
    code = found.to_authority()
    name = f"{':'.join(code)}, {found.name}" if code else found.name
    if given is not None:
        return Choice(name, "given")
    if code:
        return Choice(name, "the land lies within this UTM zone")
    return Choice(name, "equal-area around the land, which does not fit one UTM zone")


def _side(domain: Domain) -> str:
    return f"{number(domain.cell_size)} {'m' if domain.crs is not None else 'units'}"


def describe(domain: Domain) -> str:
    """Return the area, the number of nodes and of separate parts, in one line."""
    unit, name = domain.area_unit
    area = f"{number(domain.node_areas.sum() / unit)} {name if domain.crs is not None else 'square units'}"
    parts = f", {domain.n_components:,} separate parts" if domain.n_components > 1 else ""
    return f"{area} in {domain.n_nodes:,} nodes of {_side(domain)}{parts}"
