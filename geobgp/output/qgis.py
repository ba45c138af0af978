"""QGIS: styles of rasters, layers of a map, and the project that shows them."""

from __future__ import annotations

import os
import re
import uuid
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
import shapely

from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.output import palette
from geobgp.output.grids import View, hatched_cells
from geobgp.output.palette import Classes
from geobgp.output.polygons import cell_patches, node_polygons, polygonal, to_polygons
from geobgp.privacy import hidden_nodes, legend
from geobgp.text import number, percent

if TYPE_CHECKING:
    import geopandas as gpd
    import pyproj
    import xarray as xr

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- QGIS styles (.qml): rasters with the classes of `geobgp.output.palette`, polygons with outlines and labels --


def raster_qml(classes: Classes, low: float, high: float, *, band: int = 1) -> str:
    """Return a style for one band as singleband pseudocolour.

    Parameters
    ----------
    classes : Classes
        Breaks, colours and units; the units stand in every label of the legend.
    low, high : float
        Smallest and largest value of the band.
    band : int
        Which band is shown.
    """
    suffix = f" {classes.units}" if classes.units not in ("", "1") and not classes.names else ""
    labels = [label + suffix for label in classes.labels()]
    tops = [*(repr(float(b)) for b in classes.breaks), "inf"]
    items = "\n".join(
        f'            <item alpha="255" color="{colour}" value="{top}" label={quoteattr(label)}/>'
        for colour, top, label in zip(classes.hex, tops, labels, strict=True)
    )
    return f"""<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22.0" styleCategories="Symbology" hasScaleBasedVisibilityFlag="0">
  <pipe>
    <provider>
      <resampling enabled="false" zoomedInResamplingMethod="nearestNeighbour" zoomedOutResamplingMethod="nearestNeighbour" maxOversampling="2"/>
    </provider>
    <rasterrenderer type="singlebandpseudocolor" band="{band}" opacity="1" alphaBand="-1" nodataColor="" classificationMin="{low!r}" classificationMax="{high!r}">
      <rasterTransparency/>
      <minMaxOrigin>
        <limits>None</limits>
        <extent>WholeRaster</extent>
        <statAccuracy>Exact</statAccuracy>
      </minMaxOrigin>
      <rastershader>
        <colorrampshader colorRampType="DISCRETE" classificationMode="1" clip="0" minimumValue="{low!r}" maximumValue="{high!r}" labelPrecision="6">
{items}
        </colorrampshader>
      </rastershader>
    </rasterrenderer>
    <brightnesscontrast brightness="0" contrast="0" gamma="1"/>
    <huesaturation saturation="0" grayscaleMode="0" colorizeOn="0"/>
    <rasterresampler maxOversampling="2"/>
    <resamplingStage>resamplingFilter</resamplingStage>
  </pipe>
  <blendMode>0</blendMode>
</qgis>
"""  # noqa: E501


@dataclass(frozen=True)
class Fill:
    """How polygons are drawn.

    Attributes
    ----------
    outline : str
        Colour as "#rrggbb".
    width : float
        Of the outline, in millimetres.
    colour : str
        Of the inside; empty leaves it open.
    hatched : bool
        Whether the inside has lines of that colour across it, and is open between them.
    value : str
        The polygons that are drawn so: those with this value in the column that tells them apart.
    """

    outline: str
    width: float = 0.26
    colour: str = ""
    value: str = ""
    hatched: bool = False
    #: Width of a white rim under the outline, in millimetres, on which it stands out from any colour; 0 for none.
    rim: float = 0.0


def polygon_qml(fills: Sequence[Fill], *, column: str = "", label: str = "") -> str:
    """Return a style for polygons.

    Parameters
    ----------
    fills : sequence of Fill
        One for all polygons, or one for each value of `column`.
    column : str
        Tells polygons apart that are drawn in several ways.
    label : str
        The column that is written on the polygons; none if empty.

    Examples
    --------
    >>> 'labelsEnabled="1"' in polygon_qml([Fill("#404040")], label="name")
    True
    """
    symbols = "\n".join(_symbol(k, fill) for k, fill in enumerate(fills))
    if column:
        kinds = "\n".join(
            f'      <category value={quoteattr(f.value)} label={quoteattr(f.value)} symbol="{k}" render="true"/>'
            for k, f in enumerate(fills)
        )
        kind = f'type="categorizedSymbol" attr={quoteattr(column)}'
        symbols = f"    <categories>\n{kinds}\n    </categories>\n    <symbols>\n{symbols}\n    </symbols>"
    else:
        kind, symbols = 'type="singleSymbol"', f"    <symbols>\n{symbols}\n    </symbols>"
    return f"""<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22.0" styleCategories="Symbology|Labeling" labelsEnabled="{int(bool(label))}">
  <renderer-v2 {kind} forceraster="0" symbollevels="0" enableorderby="0">
{symbols}
  </renderer-v2>
{_labels(label) if label else ""}  <blendMode>0</blendMode>
</qgis>
"""


def _symbol(number: int, fill: Fill) -> str:
    layers = [
        {
            "style": "b_diagonal" if fill.hatched else "solid" if fill.colour else "no",
            "color": _rgba(fill.colour or "#ffffff"),
            "outline_color": _rgba(fill.outline),
            "outline_style": "no" if fill.hatched else "solid",
            "outline_width": f"{fill.width:g}",
            "outline_width_unit": "MM",
            "joinstyle": "round",
        }
    ]
    if fill.rim:
        rim = {"style": "no", "outline_color": _rgba("#ffffff"), "outline_width": f"{fill.rim:g}"}
        layers.insert(0, layers[0] | rim)
    drawn = "".join(
        '<layer class="SimpleFill" enabled="1" locked="0" pass="0"><Option type="Map">'
        + "".join(f'<Option type="QString" name="{k}" value="{v}"/>' for k, v in facts.items())
        + "</Option></layer>"
        for facts in layers
    )
    return f'      <symbol name="{number}" type="fill" alpha="1" clip_to_extent="1" force_rhr="0">{drawn}</symbol>'


def _labels(column: str) -> str:
    """Return dark letters with a light rim, within each polygon."""
    return f"""  <labeling type="simple">
    <settings calloutType="simple">
      <text-style fieldName={quoteattr(column)} isExpression="0" fontSize="9" fontSizeUnit="Point" textColor="32,32,32,255" textOpacity="1" multilineHeight="1">
        <text-buffer bufferDraw="1" bufferSize="0.6" bufferSizeUnits="MM" bufferColor="255,255,255,255" bufferOpacity="0.85" bufferJoinStyle="128"/>
      </text-style>
      <text-format multilineAlign="1"/>
      <placement placement="4" priority="5" centroidWhole="0" centroidInside="1" polygonPlacementFlags="2"/>
      <rendering drawLabels="1" maxNumLabels="2000" obstacle="0" fontMaxPixelSize="10000"/>
    </settings>
  </labeling>
"""  # noqa: E501


def _rgba(colour: str) -> str:
    return ",".join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5)) + ",255"


# -- QGIS projects (.qgz): groups of styled layers with relative paths, a place to open at, and times to play --


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
class LayerGroup:
    """Layers under a heading, from the top down; groups may hold groups."""

    name: str
    members: Sequence[ProjectLayer | LayerGroup]
    visible: bool = True
    expanded: bool = True

    def layers(self) -> list[ProjectLayer]:
        """Return the layers of this group and of all groups in it."""
        project_layers: list[ProjectLayer] = []
        for member in self.members:
            project_layers += member.layers() if isinstance(member, LayerGroup) else [member]
        return project_layers


def write_project(path: str | os.PathLike[str], group: LayerGroup, *, crs: pyproj.CRS | None, bounds: Bounds) -> Path:
    """Write a project that opens at `bounds`, complete or not at all.

    Parameters
    ----------
    path : str or path
        Ends in ``.qgz``; the layers' sources are taken from its folder.
    group : LayerGroup
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


def project_xml(group: LayerGroup, crs: pyproj.CRS | None, bounds: Bounds) -> str:
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


def moment(value: str | None) -> datetime | None:
    """Return a date as a datetime; None for a plain number, which is no date, and for nothing.

    Examples
    --------
    >>> moment("2020-03-01"), moment("2020-03-05T12:00:00"), moment("1961.5")
    (datetime.datetime(2020, 3, 1, 0, 0), datetime.datetime(2020, 3, 5, 12, 0), None)
    """
    try:
        float(value or 0)
        return None
    except ValueError:
        return datetime.fromisoformat(str(value))


# -- parts of the file


def _add(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = _clean(text)


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)


def _add_group(tree: ET.Element, layers: ET.Element, group: LayerGroup) -> None:
    """Add a group to the list of layers, and its layers to those of the project."""
    facts = {"name": _clean(group.name), "checked": _checked(group.visible), "expanded": str(int(group.expanded))}
    node = ET.SubElement(tree, "layer-tree-group", facts)
    for member in group.members:
        if isinstance(member, LayerGroup):
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


# -- A posterior as a QGIS project: rasters, regions of exceedance, regions with labels and the shore, in one folder --


#: The land where a threshold is exceeded with more than these probabilities.
PROBABILITIES = (0.5, 0.8, 0.95)
#: The files with polygons, and with hot spots, beside a project.
POLYGONS, HOTSPOTS = "map.gpkg", "hotspots.gpkg"
_LINES = polygon_qml([Fill("#33434b", colour="#33434b", hatched=True)])
_SHORE = polygon_qml([Fill("#4d4d4d", 0.2)])
_HIDDEN = polygon_qml([Fill("#bdbdbd", 0.1, "#d9d9d9")])


def write_qgis(
    shown: Posterior | View,
    path: str | os.PathLike[str],
    rasters: Sequence[Path],
    *,
    thresholds: Sequence[float] = (),
    regions: gpd.GeoDataFrame | None = None,
    hotspots: gpd.GeoDataFrame | None = None,
) -> Path:
    """Write a project that shows what was written of a posterior, and polygons for it beside.

    Rasters of periods are groups by statistic, which QGIS's temporal controller plays; the first group is visible.
    Where time is plain numbers there is nothing to play: then the first raster is shown, and the others wait.

    Parameters
    ----------
    shown : Posterior or View
    path : path
        Ends in ``.qgz``.
    rasters : sequence of path
        In the same folder or one inside it, with styles beside; the first one is visible. When a raster is, it says in
        its tags (`geobgp.output.rasters.time_tags`).
    thresholds : sequence of float
        The land that probably exceeds each becomes a layer.
    regions, hotspots : GeoDataFrame, optional
        What ``regions.gpkg`` and ``hotspots.gpkg``, in the same folder, hold.
    """
    folder = Path(path).absolute().parent
    group = posterior_group(shown, folder, rasters, thresholds=thresholds, regions=regions, hotspots=hotspots)
    domain = View.of(shown).domain
    return write_project(path, group, crs=domain.crs, bounds=domain.grid.bounds)


def posterior_group(
    shown: Posterior | View,
    folder: Path,
    rasters: Sequence[Path],
    *,
    thresholds: Sequence[float] = (),
    regions: gpd.GeoDataFrame | None = None,
    hotspots: gpd.GeoDataFrame | None = None,
    root: Path | None = None,
    name: str = "",
) -> LayerGroup:
    """Write the polygons of a posterior, and return the layers that show it.

    Parameters
    ----------
    shown, rasters, thresholds, regions, hotspots
        As for `write_qgis`.
    folder : path
        Where its files are.
    root : path, optional
        The folder of the project, which `folder` is within; by default the same.
    name : str
        Of the group; by default its title.
    """
    view, root = View.of(shown), folder if root is None else root
    domain, place = view.domain, "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    nodes, words = view.hatched
    # What is hatched or hidden in all periods is, in the project.
    hatched = _hatched(domain, np.atleast_2d(nodes).all(axis=0), words)
    hidden = _hidden_land(view.posterior)
    above = {f"exceedance_{t:g}": exceedance_regions(view, float(t)) for t in sorted(set(thresholds))}
    write_layers(folder / POLYGONS, {"shoreline": shoreline(domain)} | above | hatched | hidden)
    members: list[ProjectLayer | LayerGroup] = []
    if regions is not None:
        style = polygon_qml([Fill("#303030", 0.3)], label=label_column(regions))
        # Any one of several periods has all the outlines.
        one = _only(view.labels[0]) if "period" in regions else ""
        members.append(_vector("Regions", f"{place}regions.gpkg|layername=regions{one}", style, regions.crs))
    if hotspots is not None:
        members += _hotspot_layers(view, hotspots, f"{place}{HOTSPOTS}|layername=hotspots")
    members.append(_vector("Boundary", f"{place}{POLYGONS}|layername=shoreline", _SHORE, domain.crs))
    if hidden:
        hidden_words = legend(view.posterior, "Hidden")
        members.append(_vector(hidden_words, f"{place}{POLYGONS}|layername=hidden", _HIDDEN, domain.crs))
    if hatched:
        members.append(_vector(_capital(words), f"{place}{POLYGONS}|layername=hatched", _LINES, domain.crs))
    for threshold, layer in zip(sorted(set(thresholds)), above, strict=True):
        words = f"Probably more than {number(threshold, 6)} {view.posterior.units}"
        members += _of_periods(view, words, f"{place}{POLYGONS}|layername={layer}", _chances_qml())
    return LayerGroup(
        name or view.posterior.provenance["title"] or "geobgp", [*members, *_raster_layers(rasters, root, domain.crs)]
    )


# -- polygons


def _hidden_land(posterior: Posterior) -> dict[str, gpd.GeoDataFrame]:
    """Return the land whose small numbers are hidden, as a layer; none where nothing is."""
    if not posterior.protection:
        return {}
    hidden = hidden_nodes(posterior).reshape(-1, posterior.domain.n_nodes).all(axis=0)
    if not hidden.any():
        return {}
    frame = node_polygons(posterior.domain, np.where(hidden, "hidden", ""), ("hidden",))
    frame["why"] = legend(posterior)
    return {"hidden": frame}


def shoreline(domain: Domain) -> gpd.GeoDataFrame:
    """Return the land as it is mapped, one row."""
    import geopandas as gpd

    return gpd.GeoDataFrame({"name": ["land"]}, geometry=[domain.geometry], crs=domain.crs)


def _hatched(domain: Domain, nodes: np.ndarray, words: str) -> dict[str, gpd.GeoDataFrame]:
    """Return the cells of which the data say nothing, as a layer of their own; none where there is no such cell."""
    import geopandas as gpd

    patches = cell_patches(hatched_cells(domain, nodes), domain.grid.affine) if nodes.any() else []
    if not patches:
        return {}
    shapes = [polygonal(p if p.is_valid else shapely.make_valid(p)) for p in patches]
    return {"hatched": gpd.GeoDataFrame({"label": [words] * len(shapes)}, geometry=shapes, crs=domain.crs)}


def exceedance_regions(shown: Posterior | View, threshold: float) -> gpd.GeoDataFrame:
    """Return the land where `threshold` is exceeded with more than each of `PROBABILITIES`, place by place.

    Where there are periods there are rows for each, with its label in ``period``.
    """
    import pandas as pd

    view = View.of(shown)
    chances = [part.exceedance(threshold) for part in view.parts]
    if view.periods is None:
        return _exceeded(chances[0], threshold, view)
    maps = [chance.isel(time=k) for chance in chances for k in range(chance.sizes["time"])]
    frames = [
        _exceeded(one, threshold, view).assign(period=label) for one, label in zip(maps, view.labels, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def _exceeded(chance: xr.DataArray, threshold: float, view: View) -> gpd.GeoDataFrame:
    frame = to_polygons(chance, PROBABILITIES, domain=view.domain, kind="above")
    frame = frame.rename(columns={"lower": "probability"})[["probability", "area", "geometry"]]
    frame.insert(0, "label", [_chance_label(p) for p in frame["probability"]])
    frame.insert(1, "threshold", threshold)
    frame.insert(2, "units", view.posterior.units)
    return frame


def _chance_label(probability: float) -> str:
    return f"probability > {percent(probability)}"


def _chances_qml() -> str:
    classes = palette.fixed_classes(palette.PROBABILITY_BREAKS, ramp="probability")
    shades = [classes.hex[k] for k in np.searchsorted(classes.breaks, PROBABILITIES, side="right")]
    # Each lies within the one before, and is drawn after it.
    fills = [Fill("#ffffff", 0.1, c, _chance_label(p)) for c, p in zip(shades, PROBABILITIES, strict=True)]
    return polygon_qml(fills, column="label")


def label_column(frame: gpd.GeoDataFrame) -> str:
    """Return the column of words that names the rows of a frame; empty if there is none.

    Examples
    --------
    >>> import geopandas as gpd
    >>> label_column(gpd.GeoDataFrame({"code": ["a"], "GM_NAME": ["Zeist"], "n": [1]}, geometry=[None]))
    'GM_NAME'
    """
    import pandas as pd

    others = [c for c in frame.columns if c != frame.geometry.name]
    words = [str(c) for c in others if not pd.api.types.is_numeric_dtype(frame[c])]
    return next((c for c in words if "name" in c.lower()), words[0] if words else "")


def write_layers(path: Path, frames: Mapping[str, gpd.GeoDataFrame]) -> Path:
    """Write polygons as layers of one GeoPackage, complete or not at all; a layer may be empty."""
    import warnings

    with replacing(path, parents=True) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided")  # a local domain has none
        for name, frame in frames.items():
            mode = "a" if temporary.exists() else "w"
            frame.to_file(temporary, layer=name, driver="GPKG", geometry_type="MultiPolygon", mode=mode)
    return path


# -- layers


def _raster_layers(rasters: Sequence[Path], folder: Path, crs: pyproj.CRS | None) -> list[ProjectLayer | LayerGroup]:
    """Return a layer for each raster; those of periods in groups by what they show."""
    import rasterio

    layers: list[ProjectLayer | LayerGroup] = []
    groups: dict[str, list[ProjectLayer]] = {}
    for file in (Path(raster).absolute() for raster in rasters):
        if not file.is_relative_to(folder):
            raise DataError(
                f"{file} is not in the folder of the project, {folder}.",
                found=file,
                remedy="Write the rasters into that folder: a project and its rasters move together.",
            )
        with rasterio.open(file) as raster:
            name, tags = _capital(raster.tags(1).get("long_name", "")) or file.stem, raster.tags()
        style = file.with_suffix(".qml")
        layer = ProjectLayer(
            f"{tags['period']}{' (nowcast)' if 'nowcast' in tags else ''}" if "period" in tags else name,
            file.relative_to(folder).as_posix(),
            # A raster without any value has no classes.
            style.read_text("utf-8") if style.exists() else "<qgis/>",
            crs=crs,
            visible=not layers,
            span=_span(tags.get("period_start"), tags.get("period_end")),
        )
        if "period" not in tags:
            layers.append(layer)
            continue
        members = groups.setdefault(name, [])
        if not members:
            layers.append(LayerGroup(name, members, visible=not layers, expanded=False))
        members.append(replace(layer, visible=layer.span is not None or not members))
    return layers


def _vector(
    name: str, source: str, style: str, crs: pyproj.CRS | None, *, visible: bool = True, span: Span | None = None
) -> ProjectLayer:
    return ProjectLayer(name, source, style, "vector", crs, visible, span)


def _hotspot_layers(view: View, hotspots: gpd.GeoDataFrame, source: str) -> list[ProjectLayer | LayerGroup]:
    """Return a layer of hot spots for each threshold, by period where there are some, in colours of their classes."""
    if "class" in hotspots:
        fills = [Fill(colour, 0.7, value=kind, rim=1.5) for kind, colour in palette.HOTSPOT_COLOURS.items() if kind]
        style = polygon_qml(fills, column="class", label="hotspot")
    else:
        style = polygon_qml([Fill(palette.HOTSPOT_COLOURS[""], 0.7, rim=1.5)], label="hotspot")
    thresholds, units = sorted(set(hotspots["threshold"])), view.posterior.units
    layers: list[ProjectLayer | LayerGroup] = []
    for value in thresholds:
        only = f'"threshold" = {float(value)!r}' if len(thresholds) > 1 else ""
        layers += _of_periods(view, f"Hot spots above {number(value, 6)} {units}", source, style, only, visible=True)
    return layers


def _of_periods(
    view: View, name: str, source: str, style: str, only: str = "", *, visible: bool = False
) -> list[ProjectLayer | LayerGroup]:
    """Return a layer of polygons, those of the condition `only`; where there are periods a group with one for each."""
    periods, crs = view.periods, view.domain.crs
    if periods is None:
        return [_vector(name, f"{source}|subset={only}" if only else source, style, crs, visible=visible)]
    spans = [_span(str(a), str(b)) for a, b in zip(periods.starts, periods.ends, strict=True)]
    layers = [
        _vector(label + mark, source + _only(label, only), style, crs, visible=span is not None, span=span)
        for label, mark, span in zip(periods.labels, view.marks, spans, strict=True)
    ]
    return [LayerGroup(name, layers, visible=visible, expanded=False)]


def _only(label: str, also: str = "") -> str:
    """Return what a source is followed by where one period of it is shown, under a condition besides."""
    return f"|subset=\"period\" = '{label}'{f' AND {also}' if also else ''}"


def _span(start: str | None, end: str | None) -> Span | None:
    """Return from when to when a layer is shown; None where it has no time, or time is plain numbers."""
    first, last = moment(start), moment(end)
    return None if first is None or last is None else (first, last)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
