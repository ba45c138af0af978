"""Runs in QGIS's window: the plugin's menu, the dialog of an algorithm, the dialog that sets up; taken away in the end.

The variable GEOBGP_CHECK is a list in JSON: the file for the answer, a folder for pictures, points, and land.
"""

import json
import os
import traceback
from pathlib import Path

import processing
import qgis.utils
from qgis.core import QgsApplication, QgsProject, QgsVectorLayer
from qgis.PyQt.QtCore import QTimer
from qgis.utils import iface, plugins

ANSWER, FOLDER, POINTS, LAND = json.loads(os.environ["GEOBGP_CHECK"])
OUT = {"error": None}


def picture(widget, name):
    """Take a picture; return how many colours it has."""
    shown = widget.grab()
    shown.save(str(Path(FOLDER) / name))
    image = shown.toImage()
    return len({image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)})


def open_dialogs():
    plugin = plugins["geobgp"]
    project = QgsProject.instance()
    for name, path in (("Cases", POINTS), ("Shore", LAND)):
        project.addMapLayer(QgsVectorLayer(path, name, "ogr"))
    ids = {layer.name(): layer.id() for layer in project.mapLayers().values()}
    OUT["menu"] = [action.text() for menu in iface.pluginMenu().actions() if menu.menu() and menu.text() == "geobgp"
                   for action in menu.menu().actions()]  # fmt: skip
    OUT["notes"] = [item.title() for item in iface.messageBar().items()]
    dialog = processing.createAlgorithmDialog("geobgp:map", {"POINTS": ids["Cases"], "LAND": ids["Shore"]})
    dialog.resize(900, 760)
    dialog.show()
    plugin.set_up()
    QTimer.singleShot(1500, guarded(lambda: look(plugin, dialog)))


def look(plugin, dialog):
    OUT["given"] = {k: v for k, v in dialog.createProcessingParameters().items() if isinstance(v, str)}
    OUT["colours"] = [picture(dialog, "dialog.png"), picture(plugin.dialog, "setup.png")]
    OUT["shown"] = [plugin.dialog.isVisible(), plugin.dialog.stop.isVisible()]
    plugin.dialog.python.setFilePath("/no/such/python")
    plugin.dialog.use()
    OUT["locked"] = not plugin.dialog.start.isEnabled()
    plugin.dialog.task.ended.connect(lambda good, words: QTimer.singleShot(0, guarded(lambda: leave(plugin))))
    dialog.close()


def leave(plugin):
    OUT["refused"] = plugin.dialog.status.text()
    OUT["unlocked"] = plugin.dialog.start.isEnabled()
    qgis.utils.unloadPlugin("geobgp")
    OUT["left"] = QgsApplication.processingRegistry().providerById("geobgp") is not None
    end()


def end():
    Path(ANSWER).write_text(json.dumps(OUT), "utf-8")
    os._exit(0)


def guarded(step):
    """Return a step that ends all with what went wrong."""

    def run():
        try:
            step()
        except BaseException:
            OUT["error"] = traceback.format_exc()
            end()

    return run


QTimer.singleShot(1500, guarded(open_dialogs))
