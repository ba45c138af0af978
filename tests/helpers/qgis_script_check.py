"""Runs inside QGIS's own Python: the Processing script through the registry, as a person, a batch or a model uses it.

Usage: qgis_script_check.py SCRIPT JOBS_JSON; prints one line of JSON, an answer for each job. A job has "how" ("run",
"task", "model", "check"), "parameters", "layers" to open, to copy into memory, to filter, edit or select in, and
"cancel_at", a word at whose mention it is cancelled.
"""

import importlib.util
import json
import os
import sys

from qgis.core import (
    QgsApplication,
    QgsFeatureRequest,
    QgsField,
    QgsProcessingAlgRunnerTask,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingFeatureSourceDefinition,
    QgsProcessingFeedback,
    QgsProcessingModelAlgorithm,
    QgsProcessingModelChildAlgorithm,
    QgsProcessingModelChildParameterSource,
    QgsProcessingModelOutput,
    QgsProcessingModelParameter,
    QgsProcessingParameterFeatureSource,
    QgsProcessingProvider,
    QgsProcessingUtils,
    QgsProject,
    QgsVectorLayer,
)
from qgis.PyQt.QtCore import QVariant


class Feedback(QgsProcessingFeedback):
    """Keeps all that is told; cancels when a word is mentioned."""

    def __init__(self, word=None):
        super().__init__(False)
        self.word, self.told, self.percents = word, [], []
        self.progressChanged.connect(self.percents.append)

    def hear(self, kind, text):
        self.told.append([kind, text])
        if self.word and self.word in text:
            self.cancel()

    def setProgressText(self, text):  # noqa: N802
        self.hear("progress", text)

    def pushInfo(self, text):  # noqa: N802
        self.hear("info", text)

    def pushWarning(self, text):  # noqa: N802
        self.hear("warning", text)

    def pushCommandInfo(self, text):  # noqa: N802
        self.hear("command", text)

    def pushConsoleInfo(self, text):  # noqa: N802
        self.hear("console", text)

    def reportError(self, text, fatalError=False):  # noqa: N802
        self.hear("error", text)


class Provider(QgsProcessingProvider):
    """Offers the script, as QGIS's own provider of scripts does."""

    def __init__(self, algorithm):
        super().__init__()
        self.algorithm = algorithm

    def loadAlgorithms(self):  # noqa: N802
        self.addAlgorithm(self.algorithm())

    def id(self):
        return "script"

    def name(self):
        return "Scripts"


def make_layers(project, wanted):
    """Add layers to the project: opened, or copied into memory; some filtered, some with a selection."""
    for name, about in wanted.items():
        layer = QgsVectorLayer(about["path"], name, "ogr")
        if about.get("memory"):
            layer = layer.materialize(QgsFeatureRequest())
            layer.setName(name)
        if about.get("filter"):
            layer.setSubsetString(about["filter"])
        if about.get("delete"):  # and never save it
            layer.selectByExpression(about["delete"])
            layer.startEditing()
            layer.deleteSelectedFeatures()
        if about.get("select"):
            layer.selectByExpression(about["select"])
        for column, expression in about.get("computed", {}).items():
            layer.addExpressionField(expression, QgsField(column, QVariant.Double))
        project.addMapLayer(layer)


def parameters_of(job):
    out = dict(job["parameters"])
    for name, value in out.items():
        if isinstance(value, dict):
            out[name] = QgsProcessingFeatureSourceDefinition(value["layer"], True)
    return out


def load(context, feedback):
    """Do what QGIS's window does when an algorithm has ended: load the layers that it asks for."""
    project = context.project()
    for source, details in context.layersToLoadOnCompletion().items():
        layer = QgsProcessingUtils.mapLayerFromString(source, context, True, details.layerTypeHint)
        project.addMapLayer(context.temporaryLayerStore().takeMapLayer(layer))
        details.postProcessor().postProcessLayer(layer, context, feedback)


def as_model(parameters):
    """Return a model of one step with land and points as its own parameters."""
    model = QgsProcessingModelAlgorithm("one step", "tests")
    child = QgsProcessingModelChildAlgorithm("script:geobgpmap")
    child.setChildId("map")
    for name in ("POINTS", "LAND"):
        model.addModelParameter(QgsProcessingParameterFeatureSource(name, name), QgsProcessingModelParameter(name))
        child.addParameterSources(name, [QgsProcessingModelChildParameterSource.fromModelParameter(name)])
    for name, value in parameters.items():
        if name not in ("POINTS", "LAND", "OUTPUT"):
            child.addParameterSources(name, [QgsProcessingModelChildParameterSource.fromStaticValue(value)])
    output = QgsProcessingModelOutput("folder", "folder")
    output.setChildId("map")
    output.setChildOutputName("OUTPUT")
    child.setModelOutputs({"folder": output})
    model.addChildAlgorithm(child)
    return model


def main(path, jobs):
    spec = importlib.util.spec_from_file_location("geobgp_map", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    registry = QgsApplication.processingRegistry()
    provider = Provider(script.GeobgpMap)
    registry.addProvider(provider)
    return {"answers": [do(script, registry, job) for job in jobs]}


def do(script, registry, job):
    algorithm = registry.createAlgorithmById("script:geobgpmap")
    project = QgsProject.instance()
    project.clear()
    make_layers(project, job.get("layers", {}))
    context, feedback = QgsProcessingContext(), Feedback(job.get("cancel_at"))
    context.setProject(project)
    context.setFeedback(feedback)
    parameters = parameters_of(job)
    out = {
        "parameters": [p.name() for p in algorithm.parameterDefinitions()],
        "outputs": [o.name() for o in algorithm.outputDefinitions()],
        "python": algorithm.parameterDefinition("PYTHON").defaultValue(),
        "checked": list(algorithm.checkParameterValues(parameters, context)),
        "error": None,
    }
    if job["how"] == "model":
        model = as_model(parameters)
        wanted = {k: parameters[k] for k in ("POINTS", "LAND")} | {"map:folder": parameters["OUTPUT"]}
        results, out["ok"] = model.run(wanted, context, feedback)
    elif job["how"] == "task":
        task = QgsProcessingAlgRunnerTask(algorithm, parameters, context, feedback)
        ended = []
        task.executed.connect(lambda ok, results: ended.append((ok, results)))
        QgsApplication.taskManager().addTask(task)
        while not ended:
            QgsApplication.processEvents()
        out["ok"], results = ended[0]
    elif job["how"] == "run":
        try:
            results, out["ok"] = algorithm.run(parameters, context, feedback, {}, False)
        except QgsProcessingException as error:
            results, out["ok"], out["error"] = {}, False, str(error)
    else:
        results, out["ok"] = {}, None
    out["results"] = {k: v for k, v in results.items() if isinstance(v, str)}
    if out["ok"] and not feedback.isCanceled():
        load(context, feedback)
    root = project.layerTreeRoot()
    out["tree"] = {g.name(): [[n.name(), n.isVisible()] for n in g.children()] for g in root.findGroups()}
    out["loose"] = [n.name() for n in root.children() if n.nodeType() == 1]
    out["valid"] = all(layer.isValid() for layer in project.mapLayers().values())
    out["remembered"] = script.QgsSettings().value(script.SETTING, "")
    out["told"], out["percents"] = feedback.told, feedback.percents
    return out


QgsApplication.setPrefixPath("/usr", True)
app = QgsApplication([], False)
app.initQgis()
print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
sys.stdout.flush()
os._exit(0)  # the registry outlives Python's objects otherwise
