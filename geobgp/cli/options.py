"""The options of the shell, and what is checked before a fit begins."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from geobgp.auto.options import (
    LandOptions,
    Options,
    OptionSet,
    PersonOptions,
    PrevalenceOptions,
    RiskOptions,
    RiskStrataOptions,
    Setting,
    StrataOptions,
    TilesOptions,
    ValueOptions,
    setting,
    settings,
    strata_of,
)
from geobgp.errors import DataError, GeobgpError, option
from geobgp.style import Style
from geobgp.units import check_threshold
from geobgp.validation import THRESHOLDS, real

# -- Options of the shell: those of each `map_*`, where the results go and how they look ---------------------


Parsed = TypeVar("Parsed", bound=OptionSet)

#: What is no option but an argument.
_ARGUMENTS = ("points", "cases", "controls", "samples", "surveys")
_METAVAR = {
    "file": "FILE",
    "files": "FILE",
    "folder": "OUT/",
    "text": "TEXT",
    "column": "COLUMN",
    "day": "DATE",
    "columns": "COLUMN",
    "crs": "CRS",
    "number": "N",
}


class FolderOptions(OptionSet, heading="Results"):
    """Where results go."""

    output: str = setting("Folder to write.", "folder", default=MISSING, short="-o")
    force: bool = setting("Replace what an earlier run wrote.", "flag", default=False, matters=False)


class RegionOptions(OptionSet, heading="Results"):
    """Regions of tables."""

    regions: str | None = setting("Polygons to give totals for.", "file", shape="polygon")
    regions_by: str | None = setting(
        "The column with the regions' names; polygons of one name are one region.", "column", of="regions"
    )


class LookOptions(OptionSet, heading="Results"):
    """How maps look: thresholds, classes, colours, basemap."""

    thresholds: tuple[float, ...] = setting(
        "Map the probability of exceeding T; may be repeated.", "numbers", default=(), flag="--threshold", metavar="T"
    )
    context: str | None = setting("Outlines and names for map.html, for orientation without network.", "file")
    basemap: str | None = setting(
        "An online basemap for map.html, e.g. OpenStreetMap.", metavar="NAME", formerly="--tiles"
    )
    classes: str | None = setting(
        "Breaks between the map's classes, such as 0.1,0.2,0.5; how many; or quantile: equal shares of land.",
        metavar="N,N,...",
    )
    vmin: float | None = setting("Classes are even from here on.", "number")
    vmax: float | None = setting("Classes are even up to here.", "number")
    cmap: str | None = setting("Colours: a name such as viridis, or '#ffffcc,#800026'.", metavar="NAME")

    #: What is mapped; a "value" may be negative, and a "prevalence" is a share.
    quantity: ClassVar[str] = "intensity"

    def _check(self) -> None:
        THRESHOLDS("thresholds", self.thresholds)
        for threshold in self.thresholds:
            check_threshold(threshold, self.quantity, "thresholds")
            if self.quantity != "value":
                real(above=0.0)("thresholds", threshold)
        style = Style.of(**self.look())
        if style.cmap is not None:
            from geobgp.output.palette import colours

            colours(2, style.cmap)

    def look(self) -> dict[str, Any]:
        """Return classes and colours, as `Posterior.styled` takes them."""
        classes: Any = self.classes
        with suppress(AttributeError, ValueError):  # not given; no numbers
            classes = int(classes) if classes.strip().isdigit() else [float(v) for v in classes.split(",") if v.strip()]
        return {"classes": classes, "vmin": self.vmin, "vmax": self.vmax, "cmap": self.cmap}


class CheckOptions(OptionSet, heading="Results"):
    """Whether a map is checked."""

    checks: bool = setting(
        "Do not check the map by predicting parts of the data from the rest, which takes time.",
        "flag",
        default=True,
        flag="--no-checks",
        choices=(True, False),
        sets=False,
    )


class ShownOptions(FolderOptions, CheckOptions, LookOptions, RegionOptions):
    """What every command takes that writes one map."""


class ForecastOptions(OptionSet, heading="Time"):
    """Periods after the last one."""

    forecast: int = setting("Periods to forecast after the last one.", "number", default=0, least=0, metavar="N")

    def _check(self) -> None:
        if self.forecast and getattr(self, "time", None) is None:
            raise DataError(
                f"{option('forecast')} belongs to events with dates.",
                option="forecast",
                found=self.forecast,
                remedy=f"Name the column of dates: {option('time')}.",
            )


class StudyOptions(OptionSet, heading="Results"):
    """What only the author knows."""

    metadata: str | None = setting(
        "What only you know, for gather.html: case definition, ethics, funding; `geobgp metadata` writes a template.",
        "file",
        metavar="TOML",
    )


class MapOptions(StudyOptions, ForecastOptions, ShownOptions, Options):
    """What ``geobgp map`` is told: the options of `map_intensity`, and what to write."""

    show_points: bool = setting(
        "Put the points into map.html, where whoever has the file can read them.",
        "flag",
        heading="Results",
        default=False,
        needs="points",
    )

    def _check(self) -> None:
        if self.show_points and self.time is not None:
            raise DataError(
                "A map over time shows no points: they are of all periods.",
                option="show_points",
                remedy=f"Leave {option('show_points')} out.",
            )
        if self.show_points and (self.min_count or self.min_people):
            raise DataError(
                f"{option('show_points')} shows every point, and {option('min_count')} hides where few are.",
                option="min_count",
                found=self.min_count,
                remedy="Leave out one of them.",
            )


class RiskFiles(StudyOptions, ForecastOptions, ShownOptions, RiskOptions):
    """What ``geobgp risk`` is told: the options of `map_risk`, and what to write."""


class ValueFiles(StudyOptions, ForecastOptions, ShownOptions, ValueOptions):
    """What ``geobgp values`` is told: the options of `map_values`, and what to write."""

    quantity: ClassVar[str] = "value"


class PrevalenceFiles(StudyOptions, ForecastOptions, ShownOptions, PrevalenceOptions):
    """What ``geobgp prevalence`` is told: the options of `map_prevalence`, and what to write."""

    quantity: ClassVar[str] = "prevalence"


class StrataFiles(ShownOptions, StrataOptions):
    """What ``geobgp strata`` is told of points and counts by area: the options of `map_strata`, and what to write."""


class RiskStrataFiles(ShownOptions, RiskStrataOptions):
    """What ``geobgp strata`` is told of cases and controls."""


class AnyStrataFiles(ShownOptions, StrataOptions, PersonOptions):
    """All that ``geobgp strata`` has, of any kind of data."""

    @classmethod
    def of(cls, function: str, **given: Any) -> Any:
        """Return the options of the kind of data that was given."""
        return strata_of(function, (StrataFiles, RiskStrataFiles), **given)


class SimulateOptions(FolderOptions, LandOptions):
    """What ``geobgp simulate`` is told."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("bridges", "min_coverage"), "does not go with simulated points"
    )
    land: Any = setting("Polygons of the land.", "file")
    intensity: str | None = setting(
        "Events per km², everywhere or as a raster.", heading="Data", metavar="NUMBER|RASTER"
    )
    posterior: str | None = setting("A posterior.geobgp: its land and its mean intensity.", "file", heading="Data")
    seed: int = setting("The same seed gives the same points.", "number", heading="Data", default=0, least=0)
    output: str = setting(
        "File to write: .gpkg, .geojson, .parquet or .csv (longitude, latitude).",
        "folder",
        default=MISSING,
        short="-o",
        metavar="FILE",
    )


# -- click


def _features(text: str) -> Any:
    if text in ("auto", "full"):
        return text
    if not text.isdigit():
        raise ValueError(f"{text!r} is neither auto, full nor a whole number.")
    if int(text) < 1:
        raise ValueError(f"{text} features are too few; at least 1.")
    return int(text)


def _share(text: str) -> Any:
    if text == "auto":
        return text
    try:
        share = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither auto nor a number from 0 to 1.") from None
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{share:g} is not between 0 and 1.")
    return share


def _interval(text: str) -> Any:
    low, dash, high = text.partition("-")
    if not (dash and low.strip().isdigit() and high.strip().isdigit() and int(low) <= int(high)):
        raise ValueError(f"{text!r}: give the lowest and the highest number, such as 1-4.")
    return int(low), int(high)


def _named_raster(text: str) -> Any:
    name, equals, path = text.partition("=")
    if not (equals and name.strip() and path):
        raise ValueError(f"{text!r}: give a name and a raster, such as elevation=dem.tif.")
    return name.strip(), path


def _of_level(text: str) -> Any:
    level, equals, value = text.partition("=")
    if not equals or Path(text).exists():
        return "", text
    if not (level.strip() and value):
        raise ValueError(f"{text!r}: give a level and what is of it, such as postcode=postcodes.gpkg.")
    return level.strip(), value


class _Word(click.ParamType):
    """A word of the command line, read by a function that says what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what a word stands for; what is read already passes."""
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


#: Kinds of values that have a notation of their own.
_WORDS = {
    "features": _Word("auto|full|N", _features),
    "share": _Word("auto|0..1", _share),
    "interval": _Word("LOW-HIGH", _interval),
}
#: Kinds that may be repeated.
_REPEATED: dict[str, Any] = {
    "numbers": float,
    "rasters": _Word("NAME=RASTER", _named_raster),
    "columns": str,
    "files": str,
    "places": _Word("LEVEL=FILE", _of_level),
    "keys": _Word("LEVEL=COLUMN", _of_level),
}


class _Option(click.Option):
    """An option under a heading."""

    def __init__(self, *names: Any, heading: str = "", **more: Any) -> None:
        super().__init__(*names, **more)
        self.heading = heading


class GroupedCommand(click.Command):
    """A command whose help lists options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a heading last."""
        listed: dict[str, list[tuple[str, str]]] = {}
        for param in sorted(self.get_params(ctx), key=lambda param: not isinstance(param, _Option)):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                listed.setdefault(getattr(param, "heading", "Other"), []).append(record)
        for heading, records in listed.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def flag_of(name: str, how: Setting) -> str:
    """Return the long name of an option in the shell."""
    return how.flag or "--" + name.replace("_", "-")


def shell_options(options: type[OptionSet], only: Iterable[str] | None = None, **defaults: Any) -> Callable[[Any], Any]:
    """Return a decorator that gives a command the options of a set.

    Parameters
    ----------
    options : subclass of OptionSet
    only : names, optional
        These alone; by default all that the shell can say.
    **defaults
        Other defaults than in Python.
    """
    usual = {f.name: f.default for f in dataclasses.fields(options)} | defaults
    shown = {
        name: how
        for name, how in settings(options).items()
        if how.help and name not in _ARGUMENTS and (only is None or name in set(only))
    }

    def decorate(function: Any) -> Any:
        for name, how in reversed(shown.items()):
            names = [word for word in (how.short, flag_of(name, how), name) if word]
            function = click.option(*names, cls=_Option, **_details(how, usual[name]))(function)
            if how.formerly:
                function = click.option(how.formerly, hidden=True)(function)
        return function

    return decorate


def _details(how: Setting, default: Any) -> dict[str, Any]:
    """Return what click is told of an option."""
    details: dict[str, Any] = {"help": how.help, "heading": how.heading}
    if how.kind == "flag":
        return details | {"is_flag": True}
    metavar = how.metavar or _METAVAR.get(how.kind)
    required = default is MISSING or how.always
    if how.kind in _REPEATED:
        return details | {
            "type": _REPEATED[how.kind], "multiple": True, "metavar": metavar, "required": required
        }  # fmt: skip
    if how.kind == "choice":
        details |= {"type": str, "metavar": metavar} if callable(how.choices) else {"type": click.Choice(how.choices)}
    elif how.kind in _WORDS:
        details["type"] = _WORDS[how.kind]
    else:
        number = int if how.whole or isinstance(default, int) else float
        details |= {"type": number if how.kind == "number" else str, "metavar": metavar}
    if required:
        return details | {"required": True}
    return details | {"default": default, "show_default": default not in (None, "")}


def parse_options(options: type[Parsed], values: Mapping[str, Any]) -> Parsed:
    """Return the options that click has read."""
    given: dict[str, Any] = {}
    for name, how in settings(options).items():
        value = values.get(name)
        before = values.get(how.formerly.lstrip("-").replace("-", "_")) if how.formerly else None
        if before is not None and value is None:
            click.echo(f"{how.formerly} is now called {flag_of(name, how)}.", err=True)
            value = before
        if how.kind == "flag":
            value = how.sets if value else None
        elif how.kind == "rasters":
            value = _by_name(name, value or (), over_time=values.get("time") is not None)
        elif how.kind == "files":
            value = value[0] if value and len(value) == 1 else list(value or ()) or None
        elif how.kind in ("places", "keys"):
            value = _by_level(name, value or ())
        if value not in (None, {}):
            given[name] = value
    return options.of("geobgp", **given)


def _by_name(option: str, pairs: Iterable[tuple[str, str]], *, over_time: bool) -> dict[str, Any]:
    """Return rasters by name; a name that comes twice is refused, or over time has one for each period."""
    paths: dict[str, list[str]] = {}
    for name, path in pairs:
        if name in paths and not over_time:
            raise DataError(
                f"Two rasters are called {name!r}: {paths[name][0]} and {path}.",
                option=option,
                found=name,
                remedy="Give each a name of its own.",
            )
        paths.setdefault(name, []).append(path)
    return {name: each[0] if len(each) == 1 else each for name, each in paths.items()}


def _by_level(name: str, pairs: Iterable[tuple[str, str]]) -> Any:
    """Return what was given without a level, or what was given of each level by its name."""
    levels = [level for level, _ in pairs]
    twice = next((level for level in levels if levels.count(level) > 1), None)
    if twice is not None or ("" in levels and len(levels) > 1):
        raise DataError(
            f"{option(name)} was given {len(levels)} times.",
            option=name,
            found=len(levels),
            remedy=f"Give each level once: {option(name, 'LEVEL=...')}.",
        )
    values = dict(pairs)
    return values.get("", values or None)


def command_line(options: OptionSet, command: str = "map") -> str:
    """Return a command line that does the same, with names of files only.

    Examples
    --------
    >>> options = MapOptions(points="data/bites.csv", land="coast.gpkg", m=64, thresholds=(0.5,), output="out")
    >>> command_line(options)
    'geobgp map bites.csv --land coast.gpkg --features 64 --threshold 0.5 -o out'
    >>> options = RiskFiles(cases="a.csv", controls="b.csv", land="l.gpkg", confounders=("age", "sex"), output="out")
    >>> command_line(options, "risk")
    'geobgp risk a.csv b.csv --land l.gpkg --confounder age --confounder sex -o out'
    """
    given = [getattr(options, name, None) for name in _ARGUMENTS]
    words = ["geobgp", command, *(_file_name(path) for path in given if path is not None)]
    return shlex.join([*words, *option_words(options)])


def option_words(options: OptionSet) -> list[str]:
    """Return the words of a command line that set what was given, and where the results go."""
    words: list[str] = []
    known, given = settings(type(options)), options.given()
    needed = {name: getattr(options, name) for name, how in known.items() if how.always}
    needed = {"land": None} | needed  # the files first
    for name, value in (needed | given).items():
        how = known[name]
        flag = flag_of(name, how)
        if name in _ARGUMENTS or value is None or not (how.help and how.matters):
            continue
        if how.kind == "flag":
            words.append(flag)
        elif how.kind == "rasters":
            each = [(key, path) for key, paths in value.items() for path in _several(paths)]
            words += [w for key, path in each for w in (flag, f"{key}={_file_name(path)}")]
        elif how.kind in ("places", "keys"):
            each = list(value.items()) if isinstance(value, Mapping) else [("", value)]
            text = _file_name if how.kind == "places" else _text
            words += [w for level, one in each for w in (flag, f"{level}={text(one)}" if level else text(one))]
        elif how.kind == "files":
            words += [w for path in _several(value) for w in (flag, _file_name(path))]
        else:
            value = "/".join(map(str, value)) if how.kind == "span" else value
            several = value if how.kind in ("numbers", "columns") else [value]
            words += [w for v in several for w in (flag, _file_name(v) if how.kind == "file" else _text(v))]
    return [*words, "-o", _file_name(options.output)]  # type: ignore[attr-defined]


def render_option(name: str, value: Any = None) -> str:
    """Say an option of Python's in the words of the shell.

    Examples
    --------
    >>> render_option("m", "full"), render_option("cache", False), render_option("on_water"), render_option("output")
    ('--features full', '--no-cache', '--on-water', '-o')
    """
    how = _known().get(name)
    if name in _ARGUMENTS:
        return name.upper()
    if how is None or not how.help:
        return name if value is None else f"{name}={value!r}"
    flag = how.short or flag_of(name, how)
    return flag if value is None or how.kind == "flag" else f"{flag} {_text(value)}"


@cache
def _known() -> dict[str, Setting]:
    """Return all options of the shell; what several commands have is said as ``geobgp map`` says it."""
    sets = (ValueFiles, PrevalenceFiles, RiskFiles, SimulateOptions, TilesOptions, AnyStrataFiles, MapOptions)
    return {name: how for options in sets for name, how in settings(options).items()}


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _file_name(path: Any) -> str:
    return Path(str(path)).name


def _text(value: Any) -> str:
    """Return a value as the shell takes it: a number with all of its digits."""
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


# -- What can be known before a fit, and is: files, the basemap, regions, outlines for orientation -----------


def check_beforehand(options: OptionSet) -> None:
    """Refuse to begin where what is asked for could not be written after the fit.

    Files that are missing; a basemap that there is not; regions without a CRS, a geometry or the column of their names.
    """
    from geobgp.files import read_vector
    from geobgp.land.regions import check_frame, merged

    options.check_files()
    if getattr(options, "metadata", None) is not None:
        from geobgp.report.gather import Study

        Study.of(options.metadata, options.sources())  # type: ignore[attr-defined]
    crs, basemap, regions, by, context = (
        getattr(options, name, None) for name in ("crs", "basemap", "regions", "regions_by", "context")
    )
    local = isinstance(crs, str) and crs.lower() == "local"
    if basemap is not None:
        from geobgp.web.overlays import check_basemap

        check_basemap(basemap, local=local)
    if regions is not None:
        frame = read_vector(regions, "regions")
        check_frame(frame, local, "regions")
        if by is not None:
            try:
                merged(frame, by)
            except DataError as error:
                raise _as("regions_by", error) from error
    if context is not None:
        check_frame(read_vector(context, "context", columns=[]), local, "context", any_kind=True)


def _as(name: str, error: GeobgpError) -> GeobgpError:
    """Return an error that names another option."""
    return type(error)(error.message, option=name, found=error.found, remedy=error.remedy)
