"""Where the Python that has geobgp is chosen, or made."""

from __future__ import annotations

import html
from pathlib import Path

from qgis.core import QgsApplication, QgsSettings, QgsTask
from qgis.gui import QgsFileWidget
from qgis.PyQt.QtCore import pyqtSignal
from qgis.PyQt.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QGroupBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
)

from .environment import ABOUT, CANCELLED, PythonError, SetUp, mismatch, version_of
from .provider import SETTING, chosen_python


def home():
    """Return the folder of environments that are made here."""
    return Path(QgsApplication.qgisSettingsDirPath()) / "geobgp"


class CheckTask(QgsTask):
    """Asks a Python for its geobgp, in the background, and keeps it where it has one."""

    ended = pyqtSignal(bool, str)

    def __init__(self, python):
        super().__init__("Asking for geobgp", QgsTask.Flag.CanCancel)
        self.python, self.words = python, ""

    def run(self):
        """Ask."""
        try:
            self.python, version = version_of(self.python)
        except PythonError as problem:
            self.words = str(problem)
            return False
        self.words = f"geobgp {version} in {self.python}. {mismatch(version)}".strip()
        return True

    def finished(self, result):
        """Keep it, and say what came of it."""
        if result:
            QgsSettings().setValue(SETTING, self.python)
        self.ended.emit(result, CANCELLED if self.isCanceled() else self.words)


class SetUpTask(QgsTask):
    """Makes an environment with geobgp, in the background, and keeps it when it is ready."""

    told = pyqtSignal(str)
    ended = pyqtSignal(bool, str)

    def __init__(self, requirement="", base="", folder=None):
        super().__init__("Setting up geobgp", QgsTask.Flag.CanCancel)
        self.work = SetUp(
            folder or home(), requirement, base, tell=self.told.emit, progress=self.setProgress,
            canceled=self.isCanceled,
        )  # fmt: skip
        self.python, self.words = None, ""

    def run(self):
        """Make it."""
        try:
            self.python = self.work.run()
        except PythonError as problem:
            self.words = str(problem)
        except OSError as error:
            self.words = f"{self.work.folder} cannot be written: {error}. Free some space, or close other QGIS windows."
        except Exception as error:  # of a task nobody would see it
            self.words = f"geobgp could not be set up: {type(error).__name__}: {error}."
        else:
            self.words = "geobgp is ready." if self.python else CANCELLED
        return self.python is not None

    def finished(self, result):
        """Keep it, and say what came of it."""
        if result:
            QgsSettings().setValue(SETTING, self.python)
        self.ended.emit(result, self.words)


class SetUpDialog(QDialog):
    """Which Python runs geobgp; choose another, or make one."""

    def __init__(self, parent=None):
        super().__init__(parent)
        self.setWindowTitle("Set up geobgp")
        self.setMinimumWidth(560)
        self.task = None
        layout = QVBoxLayout(self)
        self.status = QLabel(
            "geobgp runs in a Python of its own, so that nothing of QGIS is changed. Choose one that has it, or let "
            "one be made."
        )
        self.status.setWordWrap(True)
        layout.addWidget(self.status)

        there = QGroupBox("A Python that has geobgp")
        row = QHBoxLayout(there)
        self.python = QgsFileWidget()
        self.python.setFilter("Programs (*)")
        self.python.setFilePath(chosen_python())
        self.python.setToolTip("The program, or the folder of an environment, in which geobgp was installed")
        self.check = QPushButton("Use it")
        self.check.clicked.connect(self.use)
        row.addWidget(self.python, 1)
        row.addWidget(self.check)
        layout.addWidget(there)

        new = QGroupBox("Or a new one")
        form = QFormLayout(new)
        self.base = QgsFileWidget()
        self.base.setFilter("Programs (*)")
        self.base.lineEdit().setPlaceholderText(f"found by itself: Python {ABOUT['python']} or newer")
        self.requirement = QLineEdit()
        self.requirement.setPlaceholderText(f"{ABOUT['requirement']}, or the path of a wheel")
        self.start = QPushButton("Set up")
        self.start.clicked.connect(self.make)
        form.addRow("Build on", self.base)
        form.addRow("Install", self.requirement)
        form.addRow(self.start)
        layout.addWidget(new)

        self.bar = QProgressBar()
        self.log = QPlainTextEdit()
        self.log.setReadOnly(True)
        self.bar.hide()
        self.log.hide()
        self.stop = QPushButton("Cancel")
        self.stop.clicked.connect(self.cancel)
        self.stop.hide()
        under_way = QHBoxLayout()
        under_way.addWidget(self.bar, 1)
        under_way.addWidget(self.stop)
        layout.addLayout(under_way)
        layout.addWidget(self.log, 1)
        layout.addStretch()
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        self.buttons.rejected.connect(self.close)
        layout.addWidget(self.buttons)

    def use(self):
        """Ask the Python that is named, and keep it."""
        self.begin(CheckTask(self.python.filePath()))

    def make(self):
        """Make an environment."""
        task = SetUpTask(self.requirement.text(), self.base.filePath())
        self.log.clear()
        self.log.show()
        task.told.connect(self.log.appendPlainText)
        self.begin(task)

    def begin(self, task):
        """Run a task in the background; its progress is here and in QGIS's status bar."""
        self.task = task
        task.ended.connect(self.end)
        task.progressChanged.connect(lambda percent: self.bar.setValue(int(percent)))
        self.bar.setRange(0, 100 if isinstance(task, SetUpTask) else 0)
        self.bar.setValue(0)
        for widget in (self.bar, self.stop):
            widget.show()
        self.lock(True)
        QgsApplication.taskManager().addTask(task)

    def cancel(self):
        """Stop what is under way."""
        if self.task is not None:
            self.stop.setEnabled(False)
            self.task.cancel()

    def end(self, good, words):
        """Say what came of it."""
        colour = "#1b7837" if good else "#b2182b"
        self.status.setText(f'<span style="color: {colour}">{html.escape(words)}</span>')
        self.python.setFilePath(chosen_python())
        self.task = None
        self.bar.hide()
        self.stop.hide()
        self.lock(False)

    def lock(self, under_way):
        """Let nothing else begin while something is under way."""
        for widget in (self.check, self.start, self.python, self.base, self.requirement):
            widget.setEnabled(not under_way)
        self.stop.setEnabled(under_way)
