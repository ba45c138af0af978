"""The plugin in QGIS: its provider, and where geobgp is set up."""

from __future__ import annotations

from qgis.core import Qgis, QgsApplication
from qgis.PyQt.QtWidgets import QAction, QPushButton

from .provider import GeobgpProvider, chosen_python, icon

NAME = "geobgp"


class GeobgpPlugin:
    """What QGIS loads.

    Parameters
    ----------
    iface : QgisInterface, optional
        The window, where there is one.
    """

    def __init__(self, iface):
        self.iface = iface
        self.provider = self.action = self.dialog = None

    def initProcessing(self):
        """Offer the algorithms; all that is needed without a window."""
        self.provider = GeobgpProvider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):
        """Offer the algorithms and the menu, and say so where geobgp is still to be set up."""
        self.initProcessing()
        self.action = QAction(icon(), "Set up geobgp…", self.iface.mainWindow())
        self.action.triggered.connect(self.set_up)
        self.iface.addPluginToMenu(NAME, self.action)
        if not chosen_python():
            bar = self.iface.messageBar()
            message = bar.createMessage(NAME, "Maps are made by a Python of their own, which is still to be set up.")
            button = QPushButton("Set up…", message)
            button.clicked.connect(self.set_up)
            message.layout().addWidget(button)
            bar.pushWidget(message, Qgis.MessageLevel.Info)

    def set_up(self):
        """Show the dialog."""
        from .dialog import SetUpDialog

        if self.dialog is None:
            self.dialog = SetUpDialog(self.iface.mainWindow())
        self.dialog.show()
        self.dialog.raise_()

    def unload(self):
        """Take away what was added."""
        if self.action is not None:
            self.iface.removePluginMenu(NAME, self.action)
            self.action.deleteLater()
        if self.dialog is not None:
            self.dialog.close()
            self.dialog.deleteLater()
        if self.provider is not None:
            QgsApplication.processingRegistry().removeProvider(self.provider)
        self.provider = self.action = self.dialog = None
