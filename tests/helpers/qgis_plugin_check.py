"""Runs inside QGIS's own Python: the plugin's algorithms through the registry, as a person or a model uses them.

Usage: qgis_plugin_check.py FOLDER JOBS_JSON; FOLDER holds the plugin, and jobs are in a file. Prints one line of JSON,
an answer for each job. A job has "how" ("run", "task", "model", "check", "setup"), "algorithm", "parameters", "layers"
to open, to copy into memory, to filter, edit or select in, and "cancel_at", a word at whose mention it is cancelled.
"""

import json
import os
import sys
from pathlib import Path

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
    QgsProcessingUtils,
    QgsProject,
    QgsRasterLayer,
    QgsSettings,
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


def make_layers(project, wanted):
    """Add layers to the project: opened, or copied into memory; some filtered, some with a selection."""
    for name, about in wanted.items():
        if about["path"].endswith(".tif"):
            project.addMapLayer(QgsRasterLayer(about["path"], name))
            continue
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
    """Do what QGIS's window does when an algorithm has ended: load the layers that it asks for, without their style."""
    project = context.project()
    for source, details in context.layersToLoadOnCompletion().items():
        layer = QgsProcessingUtils.mapLayerFromString(source, context, True, details.layerTypeHint)
        project.addMapLayer(context.temporaryLayerStore().takeMapLayer(layer))
        details.postProcessor().postProcessLayer(layer, context, feedback)


def as_model(parameters):
    """Return a model of one step with land and points as its own parameters."""
    model = QgsProcessingModelAlgorithm("one step", "tests")
    child = QgsProcessingModelChildAlgorithm("geobgp:map")
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


def wait(task):
    """Run a task in the background as QGIS does, and wait for its end."""
    ended = []
    signal = task.executed if hasattr(task, "executed") else task.ended
    signal.connect(lambda ok, result: ended.append((ok, result)))
    QgsApplication.taskManager().addTask(task)
    while not ended:
        QgsApplication.processEvents()
    return ended[0]


def set_up(job):
    """Run the task that makes an environment."""
    from geobgp.dialog import SetUpTask
    from geobgp.provider import SETTING

    lines, percents = [], []
    task = SetUpTask(job["requirement"], job["base"], job["folder"])
    task.told.connect(lines.append)
    task.told.connect(lambda line: task.cancel() if job.get("cancel_at") and job["cancel_at"] in line else None)
    task.progressChanged.connect(percents.append)
    ok, words = wait(task)
    return {"ok": ok, "words": words, "lines": lines, "percents": percents, "python": QgsSettings().value(SETTING, "")}


def do(registry, job):
    if job["how"] == "setup":
        return set_up(job)
    if "variables" in job:
        os.environ.update(job["variables"])
    algorithm = registry.createAlgorithmById(f"geobgp:{job['algorithm']}")
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
        "checked": list(algorithm.checkParameterValues(parameters, context)),
        "error": None,
    }
    if job["how"] == "model":
        wanted = {k: parameters[k] for k in ("POINTS", "LAND")} | {"map:folder": parameters["OUTPUT"]}
        results, out["ok"] = as_model(parameters).run(wanted, context, feedback)
    elif job["how"] == "task":
        out["ok"], results = wait(QgsProcessingAlgRunnerTask(algorithm, parameters, context, feedback))
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
    out["groups"] = [g.name() for g in root.findGroups(True)]
    out["loose"] = [n.name() for n in root.children() if n.nodeType() == 1]
    layers = project.mapLayers().values()
    out["valid"] = all(layer.isValid() for layer in layers)
    out["grey"] = [k.name() for k in layers if k.type() == 1 and k.renderer().type() == "singlebandgray"]
    out["told"], out["percents"] = feedback.told, feedback.percents
    return out


def main(folder, jobs):
    sys.path.insert(0, folder)
    import geobgp

    plugin = geobgp.classFactory(None)
    plugin.initProcessing()
    registry = QgsApplication.processingRegistry()
    answers = [do(registry, job) for job in jobs]
    names = [algorithm.name() for algorithm in plugin.provider.algorithms()]
    plugin.unload()
    return {"answers": answers, "algorithms": names, "unloaded": registry.providerById("geobgp") is None}


QgsApplication.setPrefixPath("/usr", True)
app = QgsApplication([], True)
app.initQgis()
print(json.dumps(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text("utf-8")))), flush=True)
sys.stdout.flush()
os._exit(0)  # the registry outlives Python's objects otherwise
