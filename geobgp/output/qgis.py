"""QGIS styles (.qml): rasters with the classes of `geobgp.output.palette`, polygons with outlines and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from geobgp.output.palette import Classes


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
    facts = {
        "style": "b_diagonal" if fill.hatched else "solid" if fill.colour else "no",
        "color": _rgba(fill.colour or "#ffffff"),
        "outline_color": _rgba(fill.outline),
        "outline_style": "no" if fill.hatched else "solid",
        "outline_width": f"{fill.width:g}",
        "outline_width_unit": "MM",
        "joinstyle": "round",
    }
    options = "".join(f'<Option type="QString" name="{k}" value="{v}"/>' for k, v in facts.items())
    return (
        f'      <symbol name="{number}" type="fill" alpha="1" clip_to_extent="1" force_rhr="0">'
        '<layer class="SimpleFill" enabled="1" locked="0" pass="0">'
        f'<Option type="Map">{options}</Option></layer></symbol>'
    )


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
