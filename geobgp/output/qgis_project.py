"""QGIS projects (.qgz): groups of styled layers with relative paths, a place to open at, and times to play."""

from __future__ import annotations

import os
import re
import uuid
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from geobgp.errors import DataError
from geobgp.files import replacing

if TYPE_CHECKING:
    import pyproj

#: The oldest QGIS that the projects are written for.
VERSION = "3.22.0"
#: How much wider than the map the first view is, on each side.
MARGIN = 0.03
# Characters that XML cannot hold.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_PROVIDERS = {"raster": "gdal", "vector": "ogr"}

Bounds = tuple[float, float, float, float]
#: First and last moment of a layer.
Span = tuple[datetime, datetime]


@dataclass(frozen=True, eq=False)
class ProjectLayer:
    """A layer of a project.

    Attributes
    ----------
    name : str
        As the list of layers shows it.
    source : str
        The file, from the project's own folder: ``mean.tif``, ``map.gpkg|layername=shoreline``.
    style : str
        A QGIS style (QML).
    kind : {"raster", "vector"}
        Vectors are polygons.
    crs : pyproj.CRS, optional
        None for a plane of its own.
    visible : bool
    span : (datetime, datetime), optional
        From when to when the temporal controller shows it, the second moment excluded; without time zones.
    """

    name: str
    source: str
    style: str
    kind: Literal["raster", "vector"] = "raster"
    crs: pyproj.CRS | None = None
    visible: bool = True
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """Layers under a heading, from the top down; groups may hold groups."""

    name: str
    members: Sequence[ProjectLayer | Group]
    visible: bool = True
    expanded: bool = True

    def layers(self) -> list[ProjectLayer]:
        """Return the layers of this group and of all groups in it."""
        found: list[ProjectLayer] = []
        for member in self.members:
            found += member.layers() if isinstance(member, Group) else [member]
        return found


def write_project(
    path: str | os.PathLike[str], group: Group, *, crs: pyproj.CRS | None, bounds: Bounds
) -> Path:
    """Write a project that opens at `bounds`, complete or not at all.

    Parameters
    ----------
    path : str or path
        Ends in ``.qgz``; the layers' sources are taken from its folder.
    group : Group
        Its name is the project's title.
    crs : pyproj.CRS, optional
        That of the project.
    bounds : (west, south, east, north)
        In `crs`.
    """
    path = Path(path)
    if path.suffix.lower() != ".qgz":
        raise DataError(
            f"A QGIS project is written as .qgz; found {path.name!r}.",
            option="path",
            found=path,
            remedy="Give a name that ends in .qgz.",
        )
    text = project_xml(group, crs, bounds)
    with replacing(path, parents=True) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr(f"{path.stem}.qgs", text, zipfile.ZIP_DEFLATED)
    return path


def project_xml(group: Group, crs: pyproj.CRS | None, bounds: Bounds) -> str:
    """Return what a project file (.qgs) holds; see `write_project`."""
    root = ET.Element("qgis", version=VERSION, projectname=_clean(group.name))
    _add(root, "title", group.name)
    root.append(_reference(crs, "projectCrs"))
    tree, layers = ET.Element("layer-tree-group"), ET.Element("projectlayers")
    _add_group(tree, layers, group)
    root.append(tree)
    west, south, east, north = _widened(bounds)
    canvas = ET.SubElement(root, "mapcanvas", name="theMapCanvas", annotationsVisible="1")
    _add(canvas, "units", "unknown" if crs is None else "meters")
    extent = ET.SubElement(canvas, "extent")
    for name, value in (("xmin", west), ("ymin", south), ("xmax", east), ("ymax", north)):
        _add(extent, name, repr(value))
    _add(canvas, "rotation", "0")
    canvas.append(_reference(crs, "destinationsrs"))
    root.append(layers)
    properties = ET.SubElement(root, "properties")
    _add(ET.SubElement(properties, "Paths"), "Absolute", "false", type="bool")
    projected = "0" if crs is None else "1"
    _add(ET.SubElement(properties, "SpatialRefSys"), "ProjectionsEnabled", projected, type="int")
    view = ET.SubElement(root, "ProjectViewSettings", UseProjectScales="0")
    view.append(_reference(crs, "DefaultViewExtent"))
    for name, value in (("xmin", west), ("ymin", south), ("xmax", east), ("ymax", north)):
        view[0].set(name, repr(value))
    spans = [layer.span for layer in group.layers() if layer.span is not None]
    if spans:
        _add_times(root, properties, spans)
    ET.indent(root)
    head = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return head + ET.tostring(root, encoding="unicode")


def moment(value: Any) -> datetime | None:
    """Return a date as a datetime in UTC without a zone; None for a plain number, which is no date.

    Examples
    --------
    >>> moment("2020-03"), moment(np.datetime64("2020-03-05T12")), moment(1961.5)
    (datetime.datetime(2020, 3, 1, 0, 0), datetime.datetime(2020, 3, 5, 12, 0), None)
    """
    if isinstance(value, (int, float, np.number)):
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    try:
        return np.datetime64(value).astype("datetime64[s]").item()
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{value!r} is no date.", found=value, remedy='Give one as in "2020-03-01".'
        ) from error


# -- parts of the file


def _add(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = _clean(text)


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)


def _add_group(tree: ET.Element, layers: ET.Element, group: Group) -> None:
    """Add a group to the list of layers, and its layers to those of the project."""
    facts = {
        "name": _clean(group.name),
        "checked": _checked(group.visible),
        "expanded": str(int(group.expanded)),
    }
    node = ET.SubElement(tree, "layer-tree-group", facts)
    for member in group.members:
        if isinstance(member, Group):
            _add_group(node, layers, member)
            continue
        name, provider = _clean(member.name), _PROVIDERS[member.kind]
        source = f"./{member.source}"
        key = re.sub(r"\W", "_", Path(member.source).name) + "_" + uuid.uuid4().hex
        # The legend of what is seen, not of all.
        expanded = str(int(member.visible and member.span is None))
        ET.SubElement(
            node, "layer-tree-layer", id=key, name=name, source=source, providerKey=provider,
            checked=_checked(member.visible), expanded=expanded,
        )  # fmt: skip
        layers.append(_layer(member, key, source))


def _checked(visible: bool) -> str:
    return "Qt::Checked" if visible else "Qt::Unchecked"


def _layer(layer: ProjectLayer, key: str, source: str) -> ET.Element:
    # A style is what stands between its outermost tags, with their attributes.
    style = ET.fromstring(layer.style)
    out = ET.Element("maplayer", style.attrib | {"type": layer.kind})
    out.attrib.pop("version", None)
    if layer.kind == "vector":
        out.set("geometry", "Polygon")
    _add(out, "id", key)
    _add(out, "datasource", source)
    _add(out, "layername", layer.name)
    out.append(_reference(layer.crs, "srs"))
    _add(out, "provider", _PROVIDERS[layer.kind], **({} if layer.kind == "raster" else {"encoding": "UTF-8"}))
    if layer.span is not None:
        time = ET.SubElement(out, "temporal", enabled="1", mode="0", fetchMode="0")
        _add_range(ET.SubElement(time, "fixedRange"), layer.span)
    out.extend(style)
    return out


def _reference(crs: pyproj.CRS | None, tag: str) -> ET.Element:
    out = ET.Element(tag)
    node = ET.SubElement(out, "spatialrefsys", nativeFormat="Wkt")
    authority = None if crs is None else crs.to_authority()
    _add(node, "wkt", "" if crs is None else crs.to_wkt())
    _add(node, "authid", "" if authority is None else ":".join(authority))
    _add(node, "description", "" if crs is None else crs.name)
    return out


def _widened(bounds: Bounds) -> Bounds:
    west, south, east, north = map(float, bounds)
    dx, dy = MARGIN * (east - west), MARGIN * (north - south)
    return west - dx, south - dy, east + dx, north + dy


def _add_times(root: ET.Element, properties: ET.Element, spans: Sequence[Span]) -> None:
    """Add from when to when the temporal controller goes: one step for each span of the layers, once a second."""
    whole = min(a for a, _ in spans), max(b for _, b in spans)
    # "xxx" is QGIS's unit of steps that the layers themselves give.
    settings = {"timeStepUnit": "xxx", "timeStep": "1", "frameRate": "1", "cumulativeTemporalRange": "0"}
    time = ET.SubElement(root, "ProjectTimeSettings", settings)
    _add_range(ET.SubElement(time, "TemporalRange"), whole)
    controller = ET.SubElement(properties, "TemporalControllerWidget")
    _add(controller, "NavigationMode", "1", type="int")  # animated
    for tag, text in zip(("StartDateTime", "EndDateTime"), _moments(whole), strict=True):
        _add(controller, tag, text, type="QString")


def _add_range(parent: ET.Element, span: Span) -> None:
    for tag, text in zip(("start", "end"), _moments(span), strict=True):
        _add(parent, tag, text)


def _moments(span: Span) -> tuple[str, str]:
    # QGIS takes both ends as part of a range: the next one begins a second later.
    end = np.datetime64(span[1], "s") - np.timedelta64(1, "s")
    return f"{np.datetime64(span[0], 's')}Z", f"{end}Z"
