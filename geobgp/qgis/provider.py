"""The provider for Processing: one algorithm for each command of geobgp that makes maps."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from qgis.core import (
    QgsProcessingAlgorithm,
    QgsProcessingException,
    QgsProcessingOutputFile,
    QgsProcessingOutputHtml,
    QgsProcessingOutputRasterLayer,
    QgsProcessingOutputVectorLayer,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterString,
    QgsProcessingProvider,
    QgsSettings,
)
from qgis.PyQt.QtGui import QIcon

from .environment import ABOUT, REMEDY, PythonError, beside_the_program, mismatch, version_of
from .layers import load_results, shown_raster
from .options import GivenValues, option, split_words
from .program import run

#: Where the Python that has geobgp is kept, and the variable that goes before it.
SETTING, VARIABLE = "geobgp/python", "GEOBGP_PYTHON"
#: The exit code of geobgp where the results are there but for some.
PARTLY = 3
#: How far along a run is, in per cent, when a stage begins; what is not here adds a little.
STAGES = {
    "land": 2, "points": 5, "areas": 5, "persons": 5, "inputs": 8, "features": 12, "fit": 20, "hyperparameters": 10,
    "strata": 70, "tiles": 20, "posterior": 68, "forecast": 69, "rasters": 70, "map": 75, "regions": 80, "project": 84,
    "pieces of land": 86, "checks": 88, "report": 94, "mosaic": 92,
}  # fmt: skip
_OUTPUTS = {
    "raster": QgsProcessingOutputRasterLayer,
    "vector": QgsProcessingOutputVectorLayer,
    "file": QgsProcessingOutputFile,
    "html": QgsProcessingOutputHtml,
}


def icon():
    """Return the plugin's icon."""
    return QIcon(str(Path(__file__).parent / "icon.svg"))


def chosen_python():
    """Return the Python to run geobgp in: a variable's, the one that was set up, the writer's, or that on the path."""
    writer = ABOUT["installed_by"]
    return (
        os.environ.get(VARIABLE)
        or QgsSettings().value(SETTING, "")
        or (writer if writer and Path(writer).exists() else "")
        or beside_the_program()
    )


class GeobgpProvider(QgsProcessingProvider):
    """All algorithms of geobgp."""

    def loadAlgorithms(self):
        """Add one for each command that makes maps."""
        for command in ABOUT["commands"]:
            self.addAlgorithm(MapAlgorithm(command))

    def id(self):
        """Return the name by which scripts call it."""
        return "geobgp"

    def name(self):
        """Return what the toolbox shows."""
        return "geobgp"

    def longName(self):
        """Return the name with the version of geobgp whose options are offered."""
        return f"geobgp {ABOUT['version']}"

    def icon(self):
        """Return what the toolbox shows beside it."""
        return icon()


class MapAlgorithm(QgsProcessingAlgorithm):
    """A command of geobgp as an algorithm."""

    def __init__(self, command):
        super().__init__()
        self.command = command
        self.options = [option(about) for about in command["parameters"]]

    def createInstance(self):
        """Return a new one, as Processing asks for."""
        return MapAlgorithm(self.command)

    def name(self):
        """Return the name by which scripts call it."""
        return self.command["name"]

    def displayName(self):
        """Return what the toolbox shows."""
        return self.command["title"]

    def shortHelpString(self):
        """Return what stands beside the form."""
        return self.command["help"]

    def tags(self):
        """Return words by which it is found."""
        return ABOUT["tags"]

    def icon(self):
        """Return what the toolbox shows beside it."""
        return icon()

    def initAlgorithm(self, config=None):
        """Declare parameters and outputs."""
        for one in self.options:
            self.addParameter(one.definition())
            if hasattr(one, "terms"):
                self.addParameter(one.terms())
        more = QgsProcessingParameterString(
            "MORE", f"Further options, as 'geobgp {self.name()} --help' lists them", optional=True
        )
        more.setFlags(more.flags() | QgsProcessingParameterDefinition.Flag.FlagAdvanced)
        self.addParameter(more)
        self.addParameter(QgsProcessingParameterBoolean("LOAD", "Load the layers as a group", defaultValue=True))
        for name, kind, label, _ in self.command["results"]:
            self.addOutput(_OUTPUTS[kind](name, label))

    def checkParameterValues(self, parameters, context):
        """Refuse an argument that has none before it."""
        missing = None
        for one in self.options:
            if one.flag:
                continue
            if parameters.get(one.name) in (None, ""):
                missing = missing or one
            elif missing is not None:
                return False, f"'{one.label}' needs '{missing.label}'."
        return super().checkParameterValues(parameters, context)

    def processAlgorithm(self, parameters, context, feedback):
        """Run the command."""
        try:
            python, version = version_of(chosen_python())
        except PythonError as problem:
            raise QgsProcessingException(str(problem)) from problem
        if mismatch(version):
            feedback.pushWarning(mismatch(version))
        folder = Path(self.parameterAsString(parameters, "OUTPUT", context))
        scratch = tempfile.mkdtemp(prefix="geobgp-qgis-")
        try:
            given = GivenValues(self, parameters, context, feedback, scratch)
            words = [word for one in self.options for word in one.words(given)]
            words += split_words(given.text("MORE"))
            if feedback.isCanceled():
                return {}
            command = [python, "-P", "-m", "geobgp.cli.app", self.name(), *words]
            MapRun(command, folder, {one.flag: one.label for one in self.options}).wait(feedback)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if feedback.isCanceled():
            return {}
        results, raster = {"OUTPUT": str(folder)}, shown_raster(folder)
        for name, kind, _, files in self.command["results"]:
            there = next((file for file in files if (folder / file.split("|")[0]).exists()), None)
            if kind == "raster" and raster is not None:
                results[name] = str(raster)
            elif there is not None:
                results[name] = str(folder / there)
        if self.parameterAsBool(parameters, "LOAD", context) and context.project() is not None:
            load_results(folder, self.command["results"][0][0], context)
        return results


class MapRun:
    """A command under way: its lines become progress, warnings and errors.

    Parameters
    ----------
    command : list of str
    folder : path
        Where it writes.
    labels : dict
        What options of the shell are called here.
    """

    def __init__(self, command, folder, labels):
        self.command, self.folder, self.labels = [*command, "--progress", "json"], folder, labels
        self.percent, self.begin, self.end = 0.0, 0.0, 0.0
        self.errors, self.others = [], []

    def wait(self, feedback):
        """Run to the end, or until it is cancelled; raise what geobgp says was wrong."""
        feedback.pushCommandInfo(shlex.join(self.command))
        before = self.leftovers()
        try:
            code = run(self.command, lambda line: self.hear(line, feedback), feedback.isCanceled)
        except OSError as error:
            raise QgsProcessingException(f"{self.command[0]} cannot be started: {error}. {REMEDY}") from error
        if code:
            for left in self.leftovers() - before:
                shutil.rmtree(left, ignore_errors=True)
        if feedback.isCanceled():
            feedback.pushInfo("Cancelled: geobgp is stopped, nothing is written.")
        elif code:
            message = self.errors[-1] if self.errors else "\n".join(self.others[-5:]) or f"It ended with {code}."
            if code != PARTLY:
                raise QgsProcessingException(f"geobgp: {message}")
            feedback.reportError(f"geobgp: {message}")

    def hear(self, line, feedback):
        """Tell Processing of a line."""
        if line.startswith("{"):
            try:
                self.move(json.loads(line), feedback)
                return
            except ValueError:
                pass
        if line.startswith("Error: "):
            self.errors.append(self.named(line[len("Error: ") :]))
        elif self.errors and line.startswith("  "):  # an error may be a list
            self.errors[-1] += f"\n{self.named(line)}"
        elif line.startswith("Warning: "):
            feedback.pushWarning(self.named(line[len("Warning: ") :]))
        elif line:
            self.others.append(line)
            feedback.pushConsoleInfo(line)

    def named(self, text):
        """Return a text with the names that options have here."""
        return re.sub(r"--?[a-z][a-z-]*", lambda flag: self.quoted(flag[0]), text)

    def quoted(self, flag):
        """Return the label of an option, or its flag where it has none."""
        return f"'{self.labels[flag]}'" if flag in self.labels else flag

    def move(self, told, feedback):
        """Move the bar, never back: within a stage towards the one after it."""
        stage, words = told.get("stage", ""), told.get("words", "")
        if told.get("state") == "begin":
            # Stages that come again, on finer cells, share what is left before results are written.
            self.begin = max(STAGES.get(stage, 0.0), self.percent + 0.05 * max(70.0 - self.percent, 0.0))
            self.end = min((at for at in STAGES.values() if at > self.begin), default=99.0)
            self.end = max(self.end, self.begin) if stage != "tiles" else STAGES["mosaic"]
            feedback.setProgressText(stage)
        elif told.get("state") == "end":
            feedback.pushInfo(f"{stage}: {words} ({told.get('seconds', 0.0):.1f} s)".replace(":  (", " ("))
        elif words:
            feedback.setProgressText(f"{stage}: {words}")
        share = told["done"] / told["total"] if told.get("total") else 0.0
        self.percent = max(self.percent, min(self.begin + (self.end - self.begin) * min(share, 1.0), 99.0))
        feedback.setProgress(self.percent)

    def leftovers(self):
        """Return the hidden folders of unfinished runs."""
        return {p for place in (self.folder.parent, self.folder) for p in place.glob(f".{self.folder.name}-*.part")}
