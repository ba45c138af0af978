"""Runs inside QGIS's own Python: opens a project and says what is in it, and draws it.

Usage: qgis_project_check.py PROJECT PICTURES QUESTIONS_JSON; prints one line of JSON. The questions are "size" of a
picture, "places" whose colours are asked for, and "pictures" by name, each with "layers" (names; by default what is
visible) and "at" (start and end).
"""

import json
import sys
from pathlib import Path

from qgis.core import (
    QgsApplication,
    QgsDateTimeRange,
    QgsInterval,
    QgsMapRendererSequentialJob,
    QgsMapSettings,
    QgsPointXY,
    QgsProject,
    QgsRectangle,
    QgsTemporalNavigationObject,
    QgsTemporalUtils,
)
from qgis.PyQt.QtCore import QDateTime, QSize, Qt
from qgis.PyQt.QtGui import QColor
from qgis.PyQt.QtXml import QDomDocument


def box(r):
    return [r.xMinimum(), r.yMinimum(), r.xMaximum(), r.yMaximum()]


def tell(layer):
    out = {
        "valid": layer.isValid(),
        "source": layer.source(),
        "authid": layer.crs().authid(),
        "crs": layer.crs().toWkt() != "",
        "extent": box(layer.extent()),
        "renderer": layer.renderer().type(),
        "legend": [],
    }
    if hasattr(layer, "legendSymbologyItems"):
        out["legend"] = [[label, colour.name()] for label, colour in layer.legendSymbologyItems()]
    else:
        out["features"] = layer.featureCount()
        out["fields"] = [field.name() for field in layer.fields()]
        out["labels"] = layer.labeling().settings().fieldName if layer.labelsEnabled() else None
    times = layer.temporalProperties()
    if times.isActive():
        span = times.fixedTemporalRange()
        out["span"] = [d.toString(Qt.ISODate) for d in (span.begin(), span.end())]
    return out


def canvas_extent(path):
    """Return what the map of QGIS's window reads from the file: where it opens."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        document = QDomDocument()
        document.setContent(archive.read(name).decode())
    settings = QgsMapSettings()
    settings.readXml(document.elementsByTagName("mapcanvas").at(0))
    return [box(settings.extent()), settings.destinationCrs().authid()]


def draw(project, layers, extent, size, at, picture, places):
    settings = QgsMapSettings()
    settings.setLayers(layers)
    settings.setDestinationCrs(project.crs())
    settings.setExtent(QgsRectangle(*extent))
    settings.setOutputSize(QSize(*size))
    settings.setBackgroundColor(QColor(255, 255, 255))
    settings.setFlag(QgsMapSettings.Antialiasing)
    if at:
        ends = [QDateTime.fromString(text, Qt.ISODate) for text in at]
        settings.setTemporalRange(QgsDateTimeRange(ends[0], ends[1], True, False))
        settings.setIsTemporal(True)
    job = QgsMapRendererSequentialJob(settings)
    job.start()
    job.waitForFinished()
    image = job.renderedImage()
    image.save(picture)
    to_pixel = settings.mapToPixel()
    pixels = [to_pixel.transform(QgsPointXY(*place)) for place in places]
    labels = [label.labelText for label in job.takeLabelingResults().allLabels()]
    return {"colours": [QColor(image.pixel(int(p.x()), int(p.y()))).name() for p in pixels], "labels": labels}


def main(path, pictures, asked):
    project = QgsProject.instance()
    out = {"read": project.read(path), "title": project.title(), "authid": project.crs().authid()}
    out["crs"] = project.crs().isValid()
    out["canvas"], out["canvas_authid"] = canvas_extent(path)
    out["view"] = box(project.viewSettings().defaultViewExtent())
    root = project.layerTreeRoot()
    out["groups"] = {g.name(): [n.name() for n in g.children()] for g in root.findGroups(True)}
    nodes = root.findLayers()
    out["layers"] = {n.name(): tell(n.layer()) | {"visible": n.isVisible()} for n in nodes}
    out["missing"] = [n.name() for n in nodes if n.layer() is None]
    steps = QgsTemporalUtils.usedTemporalRangesForProject(project)
    times = project.timeSettings()
    out["time"] = [d.toString(Qt.ISODate) for d in (times.temporalRange().begin(), times.temporalRange().end())]
    player = QgsTemporalNavigationObject()
    player.setAvailableTemporalRanges(steps)
    player.setFrameDuration(QgsInterval(times.timeStep(), times.timeStepUnit()))
    out["frames"] = [
        [d.toString(Qt.ISODate) for d in (r.begin(), r.end())]
        for r in map(player.dateTimeRangeForFrameNumber, range(player.totalFrameCount()))
    ]
    for name, what in asked.get("pictures", {}).items():
        wanted = what.get("layers")
        layers = [n.layer() for n in nodes if (n.isVisible() if wanted is None else n.name() in wanted)]
        out[name] = draw(
            project,
            layers,
            asked.get("extent", out["canvas"]),
            asked.get("size", [900, 700]),
            what.get("at"),
            str(Path(pictures) / f"{name}.png"),
            asked.get("places", []),
        )
    return out


QgsApplication.setPrefixPath("/usr", True)
app = QgsApplication([], False)
app.initQgis()
print(json.dumps(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))), flush=True)
app.exitQgis()
