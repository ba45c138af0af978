"""The shell's options come from those of Python, and the command line in a report gives them back."""

import ast
import dataclasses
import shlex

import click
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from geobgp.auto.options import HEADINGS, settings
from geobgp.cli.app import cli
from geobgp.cli.options import (
    MapOptions,
    PrevalenceFiles,
    SimulateOptions,
    ValueFiles,
    check_beforehand,
    command_line,
    parse_options,
    render_option,
)
from geobgp.errors import DataError

TALK = {"quiet", "verbose", "debug"}
WORDS = st.text(st.characters(exclude_categories=["C"], exclude_characters="/\\"), min_size=1, max_size=8)
#: Names of files and columns: what a shell must quote, but no options.
NAMES = WORDS.filter(lambda word: not word.startswith("-") and word.strip() == word and word not in (".", ".."))


def params(command):
    return {p.name: p for p in cli.commands[command].params if not getattr(p, "hidden", False)}


def read(*arguments):
    """Return the options that a command line gives."""
    context = cli.commands["map"].make_context("map", list(arguments))
    return parse_options(MapOptions, context.params)


def test_the_shell_has_every_option_that_has_help():
    shell = {name for name, how in settings(MapOptions).items() if how.help}
    assert set(params("map")) == shell | TALK | {"dry_run"}
    assert set(params("simulate")) == set(settings(SimulateOptions)) | TALK
    assert set(params("demo")) == {"cache", "output", "force"} | TALK


def test_a_former_name_works_and_says_what_it_is_called_now(capsys):
    arguments = ("p.csv", "--land", "l.gpkg", "-o", "out")
    assert read(*arguments, "--tiles", "OpenStreetMap").basemap == "OpenStreetMap"
    assert capsys.readouterr().err == "--tiles is now called --basemap.\n"
    assert read(*arguments, "--basemap", "OpenTopoMap").basemap == "OpenTopoMap"
    assert capsys.readouterr().err == ""


def test_a_basemap_that_there_is_not_is_refused_before_anything_is_read(tmp_path):
    land = tmp_path / "land.gpkg"
    land.write_bytes(b"")  # never read
    told = MapOptions(points=str(land), land=str(land), basemap="OpenStretMap", output="out")
    with pytest.raises(DataError, match="did you mean 'OpenStreetMap'"):
        check_beforehand(told)
    with pytest.raises(DataError, match="no place on Earth"):
        check_beforehand(dataclasses.replace(told, basemap="OpenStreetMap", crs="local"))


@pytest.mark.parametrize(("command", "options"), [("map", MapOptions), ("simulate", SimulateOptions)])
def test_errors_speak_of_options_as_the_shell_writes_them(command, options):
    for name, how in settings(options).items():
        if how.help and name != "points":
            assert render_option(name) in params(command)[name].opts


def test_only_the_shell_speaks_of_its_options():
    flags = {opt for c in cli.commands.values() for p in c.params for opt in (*p.opts, *p.secondary_opts)}
    flags = {opt for opt in flags if opt.startswith("--")} | {"-o"}
    for path in (ROOT / "geobgp").rglob("*.py"):
        # The plugin for QGIS is a user of the shell.
        if path.parent.name in ("cli", "qgis") or path.name in ("errors.py", "options.py"):
            continue
        texts = [n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Constant)]
        words = {word.strip("`'\".,;:()") for text in texts if isinstance(text, str) for word in text.split()}
        assert not words & flags, path


def test_no_two_options_share_a_name():
    for command in ("map", "simulate", "demo"):
        names = [opt for p in params(command).values() for opt in (*p.opts, *p.secondary_opts)]
        assert len(names) == len(set(names))


def test_defaults_are_those_of_python():
    found = read("p.csv", "--land", "l.gpkg", "-o", "out")
    assert found.given() == {}
    assert (found.points, found.land, found.output) == ("p.csv", "l.gpkg", "out")


def test_flags_stand_for_what_python_says():
    found = read(
        "p.csv", "--land", "l.gpkg", "-o", "out", "--no-cache", "--fill-missing", "--show-points", "--force",
        "--covariate", "dem=a.tif", "--covariate", "ndvi=b=c.tif", "--threshold", "1", "--threshold", "2.5",
    )  # fmt: skip
    assert found.given() == {
        "cache": False,
        "fill_missing": "mean",
        "show_points": True,
        "force": True,
        "covariates": {"dem": "a.tif", "ndvi": "b=c.tif"},
        "thresholds": (1.0, 2.5),
    }


@hypothesis.settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {"points": NAMES, "land": NAMES, "output": NAMES},
        optional={
            "water": NAMES,
            "regions": NAMES,
            "exposure": NAMES,
            "covariates": st.dictionaries(NAMES.filter(lambda name: "=" not in name), NAMES, min_size=1, max_size=3),
            "fill_missing": st.just("mean"),
            "cell_size": st.sampled_from([0.5, 250.0, 2000.0]),
            "crs": st.sampled_from(["local", "EPSG:28992"]),
            "weights": NAMES,
            "on_water": st.sampled_from(["drop", "error"]),
            "m": st.one_of(st.just("full"), st.integers(1, 4096)),
            "boundary": st.sampled_from(["neumann", "dirichlet"]),
            "permeability": st.sampled_from([0.0, 0.3, 1.0]),
            "hyper": st.just("integrate"),
            "thresholds": st.lists(st.sampled_from([0.1, 1.0, 25.0]), min_size=1, max_size=3).map(tuple),
            "basemap": NAMES,
            "context": NAMES,
            "show_points": st.just(True),
            "title": NAMES,
        },
    ).filter(
        lambda told: (
            (told.get("boundary") != "dirichlet" or not told.get("permeability"))
            and ("fill_missing" not in told or "covariates" in told)
        )
    )
)
def test_the_command_line_of_a_report_gives_the_same_options(told):
    options = MapOptions(**told)
    program, command, *arguments = shlex.split(command_line(options))
    assert (program, command) == ("geobgp", "map")
    again = read(*arguments)
    assert again.given() == options.given()
    assert (again.points, again.land, again.output) == (options.points, options.land, options.output)


def test_what_does_not_change_the_results_is_not_in_the_command_line(tmp_path):
    options = MapOptions(
        points=tmp_path / "p.csv", land=str(tmp_path / "l.gpkg"), output=tmp_path / "out", force=True, cache=False
    )
    assert command_line(options) == "geobgp map p.csv --land l.gpkg -o out"


def test_the_help_lists_options_under_their_headings():
    text = cli.commands["map"].get_help(click.Context(cli.commands["map"], info_name="map"))
    heads = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == [*HEADINGS, "Other"]
    assert text.index("--cell-size") < text.index("\nPoints:") < text.index("--on-water") < text.index("\nModel:")


def test_rasters_of_one_name_are_of_periods():
    base = {"points": "cases.csv", "land": "land.gpkg", "output": "out"}
    pairs = (("rain", "a/jan.tif"), ("slope", "s.tif"), ("rain", "a/feb.tif"))
    told = parse_options(MapOptions, base | {"time": "date", "every": "month", "covariates": pairs})
    assert told.covariates == {"rain": ["a/jan.tif", "a/feb.tif"], "slope": "s.tif"}
    assert told.files()["covariate rain 2"] == "a/feb.tif"
    assert "--covariate rain=jan.tif --covariate rain=feb.tif --covariate slope=s.tif" in command_line(told)
    assert told.record()["covariates"] == {"rain": ["jan.tif", "feb.tif"], "slope": "s.tif"}
    with pytest.raises(DataError, match="Two rasters are called 'rain'"):
        parse_options(MapOptions, base | {"covariates": pairs})


def test_thresholds_of_a_prevalence_are_refused_before_anything_is_read():
    given = {"surveys": "s.csv", "land": "l.gpkg", "positive": "k", "tested": "n", "output": "out"}
    assert PrevalenceFiles(**given, thresholds=(0.4,)).thresholds == (0.4,)
    with pytest.raises(DataError, match=r"shares between 0 and 1; found 40\. Did you mean 0\.4"):
        PrevalenceFiles(**given, thresholds=(0.4, 40.0))
    values = {"samples": "s.csv", "land": "l.gpkg", "value": "k", "output": "out"}
    assert ValueFiles(**values, thresholds=(-3.0, 40.0)).thresholds == (-3.0, 40.0)
