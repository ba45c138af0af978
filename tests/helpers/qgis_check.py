"""Runs inside QGIS's own Python: says what QGIS makes of a raster, and renders it.

Usage: qgis_check.py RASTER PICTURE PIXELS_PER_CELL CELLS_JSON; prints one line of JSON.
"""

import json
import sys

from qgis.core import QgsApplication, QgsMapRendererSequentialJob, QgsMapSettings, QgsRasterLayer, QgsVectorLayer
from qgis.PyQt.QtCore import QSize
from qgis.PyQt.QtGui import QColor


def main(path, picture, per_cell, cells):
    if path.endswith(".gpkg"):
        layer = QgsVectorLayer(path, "layer", "ogr")
        return {
            "valid": layer.isValid(),
            "authid": layer.crs().authid(),
            "features": layer.featureCount(),
            "fields": [f.name() for f in layer.fields()],
        }
    layer = QgsRasterLayer(path, "layer")
    out = {"valid": layer.isValid()}
    if not layer.isValid():
        return out
    provider, extent = layer.dataProvider(), layer.extent()
    out.update(
        authid=layer.crs().authid(),
        extent=[extent.xMinimum(), extent.yMinimum(), extent.xMaximum(), extent.yMaximum()],
        size=[layer.width(), layer.height()],
        bands=[layer.bandName(b + 1) for b in range(layer.bandCount())],
        has_nodata=provider.sourceHasNoDataValue(1),
        nodata=repr(provider.sourceNoDataValue(1)),
        # An overview is a pyramid that exists.
        overviews=sum(p.exists for p in provider.buildPyramidList()),
    )
    renderer = layer.renderer()
    out["renderer"] = renderer.type()
    if renderer.type() == "singlebandpseudocolor":
        function = renderer.shader().rasterShaderFunction()
        out["ramp"] = int(function.colorRampType())
        out["items"] = [
            [i.value if i.value < 1e300 else "inf", i.color.name(), i.label] for i in function.colorRampItemList()
        ]
    out["legend"] = [label for label, _ in layer.legendSymbologyItems()]
    settings = QgsMapSettings()
    settings.setLayers([layer])
    settings.setDestinationCrs(layer.crs())
    settings.setExtent(extent)
    settings.setOutputSize(QSize(layer.width() * per_cell, layer.height() * per_cell))
    settings.setBackgroundColor(QColor(255, 255, 255))
    job = QgsMapRendererSequentialJob(settings)
    job.start()
    job.waitForFinished()
    image = job.renderedImage()
    image.save(picture)
    half = per_cell // 2
    out["colours"] = [QColor(image.pixel(col * per_cell + half, row * per_cell + half)).name() for row, col in cells]
    return out


QgsApplication.setPrefixPath("/usr", True)
app = QgsApplication([], False)
app.initQgis()
print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))), flush=True)
app.exitQgis()
