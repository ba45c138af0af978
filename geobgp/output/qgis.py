"""QGIS styles (.qml) for rasters: a discrete ramp with the classes of `geobgp.output.palette`."""

from __future__ import annotations

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
    suffix = f" {classes.units}" if classes.units not in ("", "1") else ""
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
