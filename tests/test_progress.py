"""Stages: what is told, to whom, and when it is shown."""

import io
import json
import re
import time

import pytest
from rich.console import Console

from geobgp import progress as module
from geobgp.progress import ConsoleProgress, JsonProgress, Progress, Stage, as_progress, shell_progress


def terminal() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=True, width=100, color_system=None), text


def log() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=100), text


def work(progress: Progress) -> None:
    with progress.stage("features") as stage:
        stage.tell("eigenpairs")
        stage.step(3, 10)
        stage.step(10, 10)
        stage.note("10, neumann")


def test_times_of_one_name_add_up():
    progress = Progress()
    for name in ("fit", "map", "fit"):
        with progress.stage(name):
            time.sleep(0.02)
    assert list(progress.seconds) == ["fit", "map"]
    assert progress.seconds["fit"] > 0.039 and progress.seconds["fit"] > progress.seconds["map"]


def test_time_is_kept_and_the_error_goes_on():
    progress = Progress()
    with pytest.raises(ZeroDivisionError), progress.stage("fit"):
        raise ZeroDivisionError
    assert "fit" in progress.seconds


def test_a_callable_hears_words():
    captured = []
    work(as_progress(captured.append))
    assert captured == ["eigenpairs", "eigenpairs, 3 of 10", "eigenpairs, 10 of 10"]


def test_what_is_done_within_a_stage_is_told_as_part_of_it():
    shown = []
    outer = Stage("all", lambda *what: shown.append(what))
    work(as_progress(outer))
    assert shown == [("eigenpairs", None, None), ("eigenpairs", 3, 10), ("eigenpairs", 10, 10)]
    assert outer.detail == ""


def test_what_can_be_given():
    given = Progress()
    assert as_progress(given) is given
    assert type(as_progress(False)) is Progress
    assert isinstance(as_progress(True), ConsoleProgress)


def test_silence_is_the_default(capfd):
    work(as_progress(False))
    assert capfd.readouterr() == ("", "")


def test_a_log_file_gets_whole_lines():
    console, text = log()
    progress = ConsoleProgress(console)
    work(progress)
    progress.line("all done [1]")
    assert re.fullmatch(r"  features      10, neumann  \d\.\d s\n  all done \[1\]\n", text.getvalue())


def test_verbose_keeps_what_is_told_but_not_every_step():
    console, text = log()
    progress = ConsoleProgress(console, verbose=True)
    with progress.stage("points") as stage:
        for k in range(1000):
            stage.step(k + 1, 1000)
        stage.tell("sorting")
    assert text.getvalue().split("\n")[-4:-2] == ["    1,000 of 1,000", "    sorting"]
    assert text.getvalue().count("\n") < 6


def test_a_bar_appears_only_for_what_lasts(monkeypatch):
    console, text = terminal()
    work(ConsoleProgress(console))
    assert text.getvalue().count("\n") == 1 and "eigenpairs" not in text.getvalue()
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    console, text = terminal()
    with ConsoleProgress(console).stage("features") as stage:
        stage.tell("eigenpairs")
        stage.step(3, 10)
        time.sleep(0.3)
    assert "features: eigenpairs, 3 of 10" in text.getvalue() and "━" in text.getvalue()
    assert text.getvalue().rstrip().endswith(" s")


def test_nothing_is_left_running_after_an_error(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    console, text = terminal()
    with pytest.raises(KeyboardInterrupt), ConsoleProgress(console).stage("fit"):
        time.sleep(0.2)
        raise KeyboardInterrupt
    before = len(text.getvalue())
    time.sleep(0.3)
    assert len(text.getvalue()) == before


def test_no_color_leaves_no_escapes_on_a_terminal_either(monkeypatch, capfd):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for told, escapes in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", told)
        with ConsoleProgress().stage("fit") as stage:
            time.sleep(0.1)
            stage.note("done", "green")
        assert ("\x1b" in capfd.readouterr().err) == escapes


def test_lines_for_programs_are_json_and_not_thousands():
    lines = []
    progress = JsonProgress(lines.append)
    with progress.stage("fit") as stage:
        stage.tell("rounds – ²")
        for k in range(1000):
            stage.step(k + 1, 1000)
        stage.note("done")
    told = [json.loads(line) for line in lines]
    assert all(line.isascii() and "\n" not in line for line in lines)
    assert told[0] == {"stage": "fit", "state": "begin"}
    assert told[1] == {"stage": "fit", "state": "under way", "words": "rounds – ²", "done": None, "total": None}
    assert told[-2]["done"] == 1000 and len(told) < 100
    assert told[-1]["state"] == "end" and told[-1]["words"] == "done"
    assert progress.seconds["fit"] >= 0


def test_what_a_command_shows(capfd):
    assert type(shell_progress(quiet=True, verbose=False, form="json")) is Progress
    assert isinstance(shell_progress(quiet=False, verbose=True), ConsoleProgress)
    with shell_progress(quiet=False, verbose=False, form="json").stage("land"):
        pass
    out, err = capfd.readouterr()
    assert out == "" and [json.loads(line)["state"] for line in err.splitlines()] == ["begin", "end"]
