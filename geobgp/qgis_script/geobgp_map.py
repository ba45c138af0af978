"""QGIS Processing: a map of where things happen, made by geobgp in a Python of its own.

This file runs inside QGIS, needs nothing but QGIS, and starts ``geobgp map`` as a program. It gets into the Processing
toolbox, under Scripts, with ``geobgp qgis-script --install``.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from qgis.core import (
    QgsFeatureSink,
    QgsLayerDefinition,
    QgsProcessing,
    QgsProcessingAlgorithm,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingLayerPostProcessorInterface,
    QgsProcessingOutputFile,
    QgsProcessingOutputHtml,
    QgsProcessingOutputRasterLayer,
    QgsProcessingOutputVectorLayer,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterField,
    QgsProcessingParameterFile,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
    QgsProcessingUtils,
    QgsProject,
    QgsProviderRegistry,
    QgsReadWriteContext,
    QgsSettings,
    QgsVectorFileWriter,
)
from qgis.PyQt.QtXml import QDomDocument

#: The Python that installed this file; "" where it was copied by hand.
INSTALLED_BY = ""
#: Where the Python of the last successful run is kept.
SETTING = "geobgp/python"
#: Seconds that geobgp has to end by itself when it is cancelled.
GRACE = 10
#: The exit code of geobgp where the results are there but for some.
PARTLY = 3
#: How far along a run is, in per cent, when a stage begins; what is not known here adds a little.
STAGES = {
    "land": 2, "points": 5, "areas": 5, "inputs": 8, "features": 15, "fit": 20, "posterior": 68,
    "rasters": 70, "map": 75, "regions": 80, "project": 84, "pieces of land": 86, "checks": 88, "report": 94,
}  # fmt: skip
#: Vector layers, and the options of the shell that they are; points are an argument.
FLAGS = {
    "POINTS": "", "AREAS": "--areas", "LAND": "--land", "WATER": "--water", "POPULATION_AREAS": "--exposure",
    "REGIONS": "--regions",
}  # fmt: skip
#: What is typed or chosen from a list.
TEXTS = {"COUNT": "--count", "POPULATION_FIELD": "--exposure-column", "UNITS": "--units", "TITLE": "--title"}
HELP = """Maps the intensity of points, or of counts by area, on land, with its uncertainty. The shore is respected, and
information crosses water only as far as the data say.

Points or areas, and land, are enough. With people, per pixel or per area, the map is a rate per person. Each threshold
(several with spaces between) adds the probability of exceeding it.

geobgp runs in a Python of its own: name the one in which 'pip install geobgp' was done, or its folder; it is kept for
the next time. More options are those of 'geobgp map --help', such as: --weights cases --hyper integrate

The folder holds rasters, a QGIS project, an interactive map, a report and the numbers; the project's layers are loaded
as a group. Nothing is written when it is cancelled or fails."""
#: What QGIS sets for its own libraries, and would lead another Python astray.
FOREIGN = (
    "PYTHON", "GDAL_DATA", "GDAL_DRIVER_PATH", "PROJ_LIB", "PROJ_DATA", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "QT_",
)  # fmt: skip


class GeobgpMap(QgsProcessingAlgorithm):
    """``geobgp map`` as an algorithm."""

    def createInstance(self):
        """Return a new one, as Processing asks for."""
        return GeobgpMap()

    def name(self):
        """Return the name by which scripts call it."""
        return "geobgpmap"

    def displayName(self):
        """Return what the toolbox shows."""
        return "Map where things happen (geobgp)"

    def group(self):
        """Return the heading in the toolbox."""
        return "geobgp"

    def groupId(self):
        """Return the heading's name."""
        return "geobgp"

    def shortHelpString(self):
        """Return what stands beside the form."""
        return HELP

    def initAlgorithm(self, config=None):
        """Declare parameters and outputs."""
        point, polygon = QgsProcessing.TypeVectorPoint, QgsProcessing.TypeVectorPolygon

        def layer(name, label, kind=polygon, optional=True):
            return QgsProcessingParameterFeatureSource(name, label, [kind], optional=optional)

        def field(name, label, parent):
            kind = QgsProcessingParameterField.Numeric
            return QgsProcessingParameterField(name, label, None, parent, kind, optional=True)

        def text(name, label):
            return QgsProcessingParameterString(name, label, optional=True)

        decimal, python = QgsProcessingParameterNumber.Double, default_python() or None
        size = "Side of a cell in metres (by default the points tell)"
        replace = "Replace what an earlier run wrote into the folder (--force)"
        # Programs need not have an ending, which QGIS would otherwise ask for.
        program = {"defaultValue": python, "fileFilter": "Programs (*)"}
        for parameter in (
            layer("POINTS", "Points", point),
            layer("LAND", "Land", optional=False),
            layer("WATER", "Water to take out of the land"),
            layer("AREAS", "Areas with a number of events each, in place of points or besides"),
            field("COUNT", "Number of events in each area", "AREAS"),
            QgsProcessingParameterRasterLayer("POPULATION_RASTER", "People per pixel", optional=True),
            layer("POPULATION_AREAS", "People per area"),
            field("POPULATION_FIELD", "Number of people in each area", "POPULATION_AREAS"),
            layer("REGIONS", "Regions to give totals for"),
            QgsProcessingParameterNumber("CELL_SIZE", size, decimal, optional=True, minValue=0.0),
            text("THRESHOLDS", "Thresholds"),
            text("UNITS", "Units, such as: per 100,000"),
            text("TITLE", "Title"),
            text("OPTIONS", "More options of geobgp map"),
            QgsProcessingParameterFile("PYTHON", "Python with geobgp", **program),
            QgsProcessingParameterBoolean("LOAD", "Load the layers as a group", defaultValue=True),
            QgsProcessingParameterBoolean("FORCE", replace, defaultValue=False),
            QgsProcessingParameterFolderDestination("OUTPUT", "Folder for the results"),
        ):
            self.addParameter(parameter)
        for output in (
            QgsProcessingOutputRasterLayer("MEAN", "Mean"),
            QgsProcessingOutputVectorLayer("TOTALS", "Totals of the regions"),
            QgsProcessingOutputFile("PROJECT", "QGIS project"),
            QgsProcessingOutputHtml("REPORT", "Report"),
            QgsProcessingOutputHtml("MAP", "Interactive map"),
        ):
            self.addOutput(output)

    def checkParameterValues(self, parameters, context):
        """Refuse what cannot be before anything starts."""
        given = {name for name, value in parameters.items() if value not in (None, "")}
        problem = ""
        if not given & {"POINTS", "AREAS"}:
            problem = "Give points, or areas with a number of events each."
        elif ("AREAS" in given) != ("COUNT" in given):
            problem = "Areas need the field with the number of events, and such a field its areas."
        elif {"POPULATION_RASTER", "POPULATION_AREAS"} <= given:
            problem = "Give people either per pixel or per area, not both."
        elif "POPULATION_AREAS" in given and "POPULATION_FIELD" not in given:
            problem = "People per area need the field with their number."
        return (False, problem) if problem else super().checkParameterValues(parameters, context)

    def processAlgorithm(self, parameters, context, feedback):
        """Run ``geobgp map``."""
        python = find_python(self.parameterAsString(parameters, "PYTHON", context))
        folder = Path(self.parameterAsString(parameters, "OUTPUT", context))
        scratch = tempfile.mkdtemp(prefix="geobgp-qgis-")
        try:
            words = self.words(parameters, context, feedback, Path(scratch))
            if feedback.isCanceled():
                return {}
            Run([python, "-P", "-m", "geobgp.cli.app", "map", *words, "-o", str(folder)], folder).wait(feedback)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if feedback.isCanceled():
            return {}
        QgsSettings().setValue(SETTING, python)
        named = {"MEAN": "mean.tif", "PROJECT": "map.qgz", "REPORT": "report.html", "MAP": "map.html"}
        there = {name: str(folder / file) for name, file in named.items() if (folder / file).exists()}
        results = {"OUTPUT": str(folder)} | there
        if (folder / "regions.gpkg").exists():
            results["TOTALS"] = f"{folder / 'regions.gpkg'}|layername=regions"
        load = self.parameterAsBool(parameters, "LOAD", context) and context.project() is not None
        if load and {"MEAN", "PROJECT"} <= there.keys():
            Loader.ask(context, folder)
        return results

    def words(self, parameters, context, feedback, scratch):
        """Return the words of the command line, layers as files."""
        words = []
        for name, flag in FLAGS.items():
            source = self.parameterAsSource(parameters, name, context)
            if source is None:
                if parameters.get(name):
                    raise QgsProcessingException(self.invalidSourceError(parameters, name))
                continue
            layer = self.parameterAsVectorLayer(parameters, name, context)
            path = plain_file(parameters.get(name), layer)
            if path is None:
                path = export(source, scratch / f"{name.lower()}.gpkg", context, feedback)
            words += [flag, path] if flag else [path]
        raster = self.parameterAsRasterLayer(parameters, "POPULATION_RASTER", context)
        if raster is not None:
            if raster.providerType() != "gdal" or not Path(raster.source()).exists():
                raise QgsProcessingException(f"{raster.name()} is no file. Export it as a GeoTIFF first.")
            words += ["--exposure", raster.source()]
        for name, flag in TEXTS.items():
            text = self.parameterAsString(parameters, name, context)
            words += [flag, text] if text else []
        if parameters.get("CELL_SIZE") not in (None, ""):
            words += ["--cell-size", repr(self.parameterAsDouble(parameters, "CELL_SIZE", context))]
        words += threshold_words(self.parameterAsString(parameters, "THRESHOLDS", context))
        words += ["--force"] if self.parameterAsBool(parameters, "FORCE", context) else []
        return words + split_words(self.parameterAsString(parameters, "OPTIONS", context))


# -- what is typed


def threshold_words(text):
    """Return options for thresholds that are written with spaces between."""
    words = []
    for word in re.split(r"[;\s]+", text.strip()) if text.strip() else []:
        try:
            words += ["--threshold", repr(float(word))]
        except ValueError:
            raise QgsProcessingException(
                f"{word!r} is no threshold. Write numbers with spaces between, and decimals with a point: 0.3 1.5"
            ) from None
    return words


def split_words(text):
    """Return the words of a command line as its own system would."""
    words = shlex.split(text or "", posix=os.name != "nt")
    return [w[1:-1] if os.name == "nt" and len(w) > 1 and w[0] == w[-1] == '"' else w for w in words]


# -- layers as files


def plain_file(value, layer):
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


def export(source, path, context, feedback):
    """Write what a source gives, selected features say, as a GeoPackage; return its path."""
    options = QgsVectorFileWriter.SaveVectorOptions()
    options.driverName, options.layerName = "GPKG", path.stem
    options.layerOptions = ["FID=geobgp_row"]  # a column called fid may hold anything
    writer = QgsVectorFileWriter.create(
        str(path), source.fields(), source.wkbType(), source.sourceCrs(), context.transformContext(), options
    )
    if writer.hasError():
        raise QgsProcessingException(f"A layer could not be exported: {writer.errorMessage()}")
    for feature in source.getFeatures():
        if feedback.isCanceled():
            break
        if not writer.addFeature(feature, QgsFeatureSink.FastInsert):
            raise QgsProcessingException(f"A layer could not be exported: {writer.errorMessage()}")
    del writer  # closes the file
    return str(path)


# -- geobgp


def default_python():
    """Return the Python to begin with: a variable's, the last one, the installer's, or that of geobgp on the path."""
    beside = shutil.which("geobgp")
    found = Path(beside).resolve().parent / ("python.exe" if os.name == "nt" else "python") if beside else None
    there = str(found) if found is not None and found.exists() else ""
    return os.environ.get("GEOBGP_PYTHON") or QgsSettings().value(SETTING, "") or INSTALLED_BY or there


def find_python(text):
    """Return the program, and refuse one that has no geobgp."""
    advice = "Name the Python in which 'pip install geobgp' was done, or the folder of its environment."
    if not text:
        raise QgsProcessingException(f"No Python is named. {advice}")
    path = Path(text).expanduser()
    if path.is_dir():
        names = ("bin/python", "Scripts/python.exe", "python.exe", "python")
        path = next((path / name for name in names if (path / name).is_file()), path)
    ask = [str(path), "-c", "import sys, geobgp; print(sys.version_info[:2])"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, env=clean(), timeout=120, check=False, **hidden())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QgsProcessingException(f"{text} cannot be run as Python ({error}). {advice}") from error
    if told.returncode:
        last = (told.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise QgsProcessingException(f"{text} has no geobgp ({last}). {advice}")
    return str(path)


def clean():
    """Return the environment without what QGIS has set for itself."""
    return {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)} | {"PYTHONIOENCODING": "utf-8"}


def hidden():
    """Return what keeps Windows from opening a window."""
    return {"creationflags": subprocess.CREATE_NO_WINDOW} if os.name == "nt" else {}


class Run:
    """``geobgp map`` under way: its lines become progress, warnings and errors."""

    def __init__(self, command, folder):
        self.command = [*command, "--progress", "json"]
        self.folder = folder
        self.percent = 0.0
        self.base = 0.0
        self.errors = []
        self.others = []

    def wait(self, feedback):
        """Run to the end, or until it is cancelled; raise what geobgp says was wrong."""
        feedback.pushCommandInfo(shlex.join(self.command))
        before = self.leftovers()
        group = {} if os.name == "nt" else {"start_new_session": True}
        process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean(),
            encoding="utf-8", errors="replace", **group, **hidden(),
        )  # fmt: skip
        lines = queue.Queue()
        reader = threading.Thread(target=self.read, args=(process, lines), daemon=True)
        reader.start()
        try:
            while True:
                if feedback.isCanceled():
                    feedback.pushInfo("Cancelled: geobgp is stopped, nothing is written.")
                    break
                try:
                    line = lines.get(timeout=0.1)
                except queue.Empty:
                    continue
                if line is None:
                    break
                self.hear(line.rstrip(), feedback)
        finally:
            if process.poll() is None and (feedback.isCanceled() or reader.is_alive()):
                stop(process)
            code = process.wait()
            if code:
                for left in self.leftovers() - before:
                    shutil.rmtree(left, ignore_errors=True)
        if code and not feedback.isCanceled():
            message = self.errors[-1] if self.errors else "\n".join(self.others[-5:]) or f"It ended with {code}."
            if code == PARTLY:
                feedback.reportError(f"geobgp: {message}")
                return
            raise QgsProcessingException(f"geobgp: {message}")

    @staticmethod
    def read(process, lines):
        """Hand on each line, and None at the end."""
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def hear(self, line, feedback):
        """Tell Processing of a line."""
        if line.startswith("{"):
            try:
                self.move(json.loads(line), feedback)
                return
            except ValueError:
                pass
        if line.startswith("Error: "):
            self.errors.append(line[len("Error: ") :])
        elif self.errors and line.startswith("  "):  # an error may be a list
            self.errors[-1] += f"\n{line}"
        elif line.startswith("Warning: "):
            feedback.pushWarning(line[len("Warning: ") :])
        elif line:
            self.others.append(line)
            feedback.pushConsoleInfo(line)

    def move(self, told, feedback):
        """Move the bar, never back."""
        stage, words = told.get("stage", ""), told.get("words", "")
        if told.get("state") == "begin":
            # Stages that come again, on finer cells, share what is left before results are written.
            self.base = max(STAGES.get(stage, 0.0), self.percent + 0.05 * max(70.0 - self.percent, 0.0))
            feedback.setProgressText(stage)
        elif told.get("state") == "end":
            feedback.pushInfo(f"{stage}: {words} ({told.get('seconds', 0.0):.1f} s)".replace(":  (", " ("))
        elif words:
            feedback.setProgressText(f"{stage}: {words}")
        share = told["done"] / told["total"] if told.get("total") else 0.0
        self.percent = max(self.percent, min(self.base + 5.0 * min(share, 1.0), 99.0))
        feedback.setProgress(self.percent)

    def leftovers(self):
        """Return the hidden folders of unfinished runs."""
        return {p for place in (self.folder.parent, self.folder) for p in place.glob(f".{self.folder.name}-*.part")}


def stop(process):
    """End a process and all that it has started."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False, **hidden())
        return
    for how, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, how)
            process.wait(seconds)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


# -- into the project

#: Loaders that wait for their turn; Processing does not keep them.
KEPT = []


class Loader(QgsProcessingLayerPostProcessorInterface):
    """Puts the layers of ``map.qgz`` into the project, around the raster that Processing has loaded."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    @classmethod
    def ask(cls, context, folder):
        """Ask Processing to load what the map shows when all is done, and then the rest, in the main thread."""
        loader = cls(folder / "map.qgz")
        KEPT.append(loader)
        hint = QgsProcessingUtils.LayerHint.Raster
        # Of rates and relative risks that is the median.
        drawn = json.loads((folder / "summary.json").read_text("utf-8")).get("drawn", "mean")
        details = QgsProcessingContext.LayerDetails(drawn.capitalize(), context.project(), "MEAN", hint)
        details.setPostProcessor(loader)
        file = "q50.tif" if drawn == "median" else "mean.tif"
        context.addLayerToLoadOnCompletion(str(folder / file), details)

    def postProcessLayer(self, layer, context, feedback):
        """Load the group."""
        project, made = context.project(), QgsProject()
        made.read(str(self.path))
        group = made.layerTreeRoot().children()[0]
        document = QDomDocument("qgis-layer-definition")
        QgsLayerDefinition.exportLayerDefinition(document, group.children(), QgsReadWriteContext())
        root = project.layerTreeRoot()
        into = root.insertGroup(0, group.name())
        done, message = QgsLayerDefinition.loadLayerDefinition(document, project, into, QgsReadWriteContext())
        if not done:
            feedback.reportError(f"{self.path}: {message}")
        self.put_in_place(layer, into, project)
        KEPT.remove(self)

    @staticmethod
    def put_in_place(layer, into, project):
        """Let the raster that is there already take the place of its double in the group."""
        own = project.layerTreeRoot().findLayer(layer.id())
        double = next((n for n in into.findLayers() if n.layer() and n.layer().source() == layer.source()), None)
        if own is None or double is None:
            return
        layer.setName(double.name())
        into.insertChildNode(into.children().index(double), own.clone())
        own.parent().removeChildNode(own)
        project.removeMapLayer(double.layerId())
