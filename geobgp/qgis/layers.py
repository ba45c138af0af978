"""Layers of the project as files that geobgp can read, and its results as layers of the project."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from qgis.core import (
    QgsFeatureSink,
    QgsLayerDefinition,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingLayerPostProcessorInterface,
    QgsProcessingUtils,
    QgsProject,
    QgsProviderRegistry,
    QgsReadWriteContext,
    QgsVectorFileWriter,
)
from qgis.PyQt.QtXml import QDomDocument

# -- layers as files


def vector_file(source, layer, value, given, name):
    """Return a file of what a source shows: its own where that is all of it, else an export in a folder for the run."""
    path = _plain_file(value, layer)
    return path if path is not None else _export(source, given.scratch / f"{name}.gpkg", given)


def raster_file(layer):
    """Return the file of a raster."""
    if layer.providerType() != "gdal" or not Path(layer.source()).exists():
        raise QgsProcessingException(f"{layer.name()} is no file. Export it as a GeoTIFF first.")
    return layer.source()


def _plain_file(value, layer):
    """Return the file of a layer that shows all of it as it is; None where it must be exported."""
    if layer is None or layer.providerType() != "ogr" or getattr(value, "selectedFeaturesOnly", False):
        return None
    if getattr(value, "featureLimit", -1) != -1 or getattr(value, "filterExpression", ""):
        return None
    own = len(layer.fields()) != len(layer.dataProvider().fields())  # joined or computed columns
    if own or layer.subsetString() or layer.isModified() or layer.crs() != layer.dataProvider().crs():
        return None
    parts = QgsProviderRegistry.instance().decodeUri("ogr", layer.source())
    path, name = parts.get("path") or "", parts.get("layerName")
    if not Path(path).is_file() or parts.get("layerId"):
        return None
    return f"{path}|layername={name}" if name else path


def _export(source, path, given):
    """Write what a source gives, selected features say, as a GeoPackage; return its path."""
    options = QgsVectorFileWriter.SaveVectorOptions()
    options.driverName, options.layerName = "GPKG", path.stem
    options.layerOptions = ["FID=geobgp_row"]  # a column called fid may hold anything
    writer = QgsVectorFileWriter.create(
        str(path), source.fields(), source.wkbType(), source.sourceCrs(), given.context.transformContext(), options
    )
    if writer.hasError():
        raise QgsProcessingException(f"A layer could not be exported: {writer.errorMessage()}")
    for feature in source.getFeatures():
        if given.feedback.isCanceled():
            break
        if not writer.addFeature(feature, QgsFeatureSink.Flag.FastInsert):
            raise QgsProcessingException(f"A layer could not be exported: {writer.errorMessage()}")
    del writer  # closes the file
    return str(path)


# -- results as layers

#: Loaders that wait for their turn; Processing does not keep them.
_WAITING = []


def load_results(folder, name, context):
    """Ask Processing to load the layers of a folder of results, in the main thread, when all is done."""
    raster = shown_raster(folder)
    if raster is None:
        return
    details = QgsProcessingContext.LayerDetails(
        raster.stem.capitalize(), context.project(), name, QgsProcessingUtils.LayerHint.Raster
    )
    loader = Loader(folder / "map.qgz")
    _WAITING.append(loader)
    details.setPostProcessor(loader)
    context.addLayerToLoadOnCompletion(str(raster), details)


def shown_raster(folder):
    """Return the raster that the project in a folder shows, or else the first one there; None where there is none."""
    first = next(iter(sorted(folder.glob("*.tif"))), None)
    try:
        with ZipFile(folder / "map.qgz") as archive:
            inside = next(name for name in archive.namelist() if name.endswith(".qgs"))
            text = archive.read(inside).decode("utf-8")
    except (BadZipFile, OSError, StopIteration):
        return first
    nodes = re.findall(r"<layer-tree-layer [^>]*>", text)
    nodes.sort(key=lambda node: "Qt::Checked" not in node)  # those that are shown first
    sources = (re.search(r'\bsource="([^"]+\.tif)"', node) for node in nodes)
    paths = (folder / html.unescape(source[1]) for source in sources if source)
    return next((path.resolve() for path in paths if path.exists()), first)


class Loader(QgsProcessingLayerPostProcessorInterface):
    """Puts the layers of ``map.qgz`` into the project, around the raster that Processing has loaded."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def postProcessLayer(self, layer, context, feedback):
        """Load the group; where there is no project, only the style of the raster."""
        _WAITING.remove(self)
        if not self.path.exists():
            layer.loadDefaultStyle()
            layer.triggerRepaint()
            return
        project, made = context.project(), QgsProject()
        made.read(str(self.path))
        nodes = made.layerTreeRoot().children()
        title = made.title() or self.path.parent.name
        if len(nodes) == 1 and hasattr(nodes[0], "findGroups"):  # a group of its own
            title, nodes = nodes[0].name(), nodes[0].children()
        document = QDomDocument("qgis-layer-definition")
        QgsLayerDefinition.exportLayerDefinition(document, nodes, QgsReadWriteContext())
        into = project.layerTreeRoot().insertGroup(0, title)
        done, message = QgsLayerDefinition.loadLayerDefinition(document, project, into, QgsReadWriteContext())
        if not done:
            feedback.reportError(f"{self.path}: {message}")
        self.put_in_place(layer, into, project)

    @staticmethod
    def put_in_place(layer, into, project):
        """Let the raster that is there already take the place of its double in the group."""
        own = project.layerTreeRoot().findLayer(layer.id())
        doubles = (n for n in into.findLayers() if n.layer() and _same(n.layer().source(), layer.source()))
        double = next(doubles, None)
        if own is None or double is None:
            return
        style = QDomDocument("qgis")
        double.layer().exportNamedStyle(style)
        layer.importNamedStyle(style)
        layer.setName(double.name())
        group, node = double.parent(), own.clone()
        node.setItemVisibilityChecked(double.itemVisibilityChecked())
        node.setExpanded(double.isExpanded())
        group.insertChildNode(group.children().index(double), node)
        own.parent().removeChildNode(own)
        project.removeMapLayer(double.layerId())


def _same(source, other):
    return os.path.realpath(source) == os.path.realpath(other)
