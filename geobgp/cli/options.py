"""The options of the shell, and what is checked before a fit begins."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from geobgp.auto.options import Options, OptionSet, RiskOptions, Setting, setting, settings
from geobgp.errors import DataError, GeobgpError, option
from geobgp.files import read_vector
from geobgp.land.regions import check_frame, merged
from geobgp.scale.strata import StrataOptions
from geobgp.scale.tiles import TilesOptions
from geobgp.style import Style
from geobgp.validation import THRESHOLDS

# -- Options of the shell: those of `map_intensity` and where the results go, as click knows and writes them --


Chosen = TypeVar("Chosen", bound=OptionSet)

#: What is no option but an argument.
_ARGUMENTS = ("points", "cases", "controls")
_METAVAR = {
    "file": "FILE",
    "files": "FILE",
    "folder": "OUT/",
    "text": "TEXT",
    "column": "COLUMN",
    "crs": "CRS",
    "number": "N",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MapOptions(Options):
    """What ``geobgp map`` is told: the options of `map_intensity`, and what to write."""

    thresholds: tuple[float, ...] = setting(
        "Map the probability of exceeding T; may be repeated.",
        "Results",
        "numbers",
        default=(),
        flag="--threshold",
        metavar="T",
        above=0.0,
    )
    regions: str | None = setting("Polygons to give totals for.", "Results", "file")
    regions_by: str | None = setting(
        "The column with the regions' names; polygons of one name are one region.", "Results", "column"
    )
    context: str | None = setting(
        "Outlines and names for map.html, for orientation without network.", "Results", "file"
    )
    basemap: str | None = setting(
        "An online basemap for map.html, e.g. OpenStreetMap.", "Results", metavar="NAME", formerly="--tiles"
    )
    classes: str | None = setting(
        "Breaks between the map's classes, such as 0.1,0.2,0.5; how many; or quantile: equal shares of land.",
        "Results",
        metavar="N,N,...",
    )
    vmin: float | None = setting("Classes are even from here on.", "Results", "number")
    vmax: float | None = setting("Classes are even up to here.", "Results", "number")
    cmap: str | None = setting(
        "Colours: a name such as viridis, or '#ffffcc,#800026'.", "Results", metavar="NAME"
    )
    show_points: bool = setting(
        "Put the points into map.html, where whoever has the file can read them.",
        "Results",
        "flag",
        default=False,
    )
    checks: bool = setting(
        "Do not check the map by predicting parts of the data from the rest, which takes time.",
        "Results",
        "flag",
        default=True,
        flag="--no-checks",
        choices=(True, False),
        sets=False,
    )
    forecast: int = setting(
        "Periods to forecast after the last one.", "Time", "number", default=0, least=0, metavar="N"
    )
    output: str = setting("Folder to write.", "Results", "folder", default=MISSING, short="-o")
    force: bool = setting(
        "Replace what an earlier run wrote.", "Results", "flag", default=False, matters=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        look(self)
        THRESHOLDS("thresholds", self.thresholds)
        if self.forecast and self.time is None:
            raise DataError(
                f"{option('forecast')} belongs to events with dates.",
                option="forecast",
                found=self.forecast,
                remedy=f"Name the column of dates: {option('time')}.",
            )
        if self.show_points and self.time is not None:
            raise DataError(
                "A map over time shows no points: they are of all periods.",
                option="show_points",
                remedy=f"Leave {option('show_points')} out.",
            )


def as_in(name: str, **more: Any) -> Any:
    """Return the field of an option that ``geobgp map`` has too."""
    how = dataclasses.replace(settings(MapOptions)[name], always=False, **more)
    return field(default=not how.sets if how.kind == "flag" else None, metadata={"setting": how})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SimulateOptions(OptionSet):
    """What ``geobgp simulate`` is told."""

    land: str | None = as_in("land")
    water: str | None = as_in("water")
    barriers: str | None = as_in("barriers")
    cell_size: float | None = as_in("cell_size")
    crs: str | None = as_in("crs")
    land_crs: str | None = as_in("land_crs")
    intensity: str | None = setting(
        "Events per km², everywhere or as a raster.", "Data", metavar="NUMBER|RASTER"
    )
    posterior: str | None = setting("A posterior.geobgp: its land and its mean intensity.", "Data", "file")
    seed: int = setting("The same seed gives the same points.", "Data", "number", default=0, least=0)
    output: str = setting(
        "File to write: .gpkg, .geojson, .parquet or .csv (longitude, latitude).",
        "Results",
        "folder",
        default=MISSING,
        short="-o",
        metavar="FILE",
    )
    force: bool = as_in("force")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RiskFiles(RiskOptions):
    """What ``geobgp risk`` is told: the options of `map_risk`, and what to write."""

    regions: str | None = as_in("regions")
    regions_by: str | None = as_in("regions_by")
    context: str | None = as_in("context")
    basemap: str | None = as_in("basemap")
    classes: str | None = as_in("classes")
    vmin: float | None = as_in("vmin")
    vmax: float | None = as_in("vmax")
    cmap: str | None = as_in("cmap")
    checks: bool = as_in("checks")
    output: str = setting("Folder to write.", "Results", "folder", default=MISSING, short="-o")
    force: bool = as_in("force")

    def __post_init__(self) -> None:
        super().__post_init__()
        look(self)


def look(options: MapOptions | RiskFiles) -> dict[str, Any]:
    """Return what `Posterior.styled` is told; what cannot be is said before anything is read."""
    told = options.classes
    classes: Any = told
    if told is not None:
        try:
            classes = (
                int(told) if told.strip().isdigit() else [float(v) for v in told.split(",") if v.strip()]
            )
        except ValueError:
            classes = told
    Style.of(classes, options.vmin, options.vmax, options.cmap)
    if options.cmap is not None:
        from geobgp.output.palette import colours

        colours(2, Style.of(cmap=options.cmap).cmap or "")
    return {"classes": classes, "vmin": options.vmin, "vmax": options.vmax, "cmap": options.cmap}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StrataFiles(StrataOptions):
    """What ``geobgp strata`` is told: the options of `map_strata`, and what to write."""

    regions: str | None = as_in("regions")
    output: str = setting("Folder to write.", "Results", "folder", default=MISSING, short="-o")
    force: bool = as_in("force")


# -- click


class _Features(click.ParamType):
    """``auto``, ``full`` or a number."""

    name = "auto|full|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("auto", "full"):
            return value
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto, full nor a whole number.", param, ctx)
        if number < 1:
            self.fail(f"{number} features are too few; at least 1.", param, ctx)
        return number


class _Share(click.ParamType):
    """``auto`` or a number from 0 to 1."""

    name = "auto|0..1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return value
        try:
            share = float(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto nor a number from 0 to 1.", param, ctx)
        if not 0.0 <= share <= 1.0:
            self.fail(f"{share:g} is not between 0 and 1.", param, ctx)
        return share


class _Interval(click.ParamType):
    """Two whole numbers with a dash between them."""

    name = "LOW-HIGH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        low, dash, high = value.partition("-")
        if not (dash and low.strip().isdigit() and high.strip().isdigit() and int(low) <= int(high)):
            self.fail(f"{value!r}: give the lowest and the highest number, such as 1-4.", param, ctx)
        return int(low), int(high)


class _Named(click.ParamType):
    """``name=path``."""

    name = "NAME=RASTER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, found, path = value.partition("=")
        if not (found and name.strip() and path):
            self.fail(f"{value!r}: give a name and a raster, such as elevation=dem.tif.", param, ctx)
        return name.strip(), path


class _Option(click.Option):
    """An option under a heading."""

    def __init__(self, *names: Any, group: str = "", **more: Any) -> None:
        super().__init__(*names, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a heading last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in sorted(self.get_params(ctx), key=lambda param: not isinstance(param, _Option)):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups.setdefault(param.group if isinstance(param, _Option) else "Other", []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def flag_of(name: str, how: Setting) -> str:
    """Return the long name of an option in the shell."""
    return how.flag or "--" + name.replace("_", "-")


def shell_options(
    options: type[OptionSet], only: Iterable[str] | None = None, **defaults: Any
) -> Callable[[Any], Any]:
    """Return a decorator that gives a command the options of a set.

    Parameters
    ----------
    options : subclass of OptionSet
    only : names, optional
        These alone; by default all that the shell can say.
    **defaults
        Other defaults than in Python.
    """
    fields = [
        f
        for f in dataclasses.fields(options)
        if f.metadata["setting"].help and f.name not in _ARGUMENTS and (only is None or f.name in set(only))
    ]

    def decorate(function: Any) -> Any:
        for f in reversed(fields):
            default = defaults.get(f.name, f.default)
            function = click.option(*_names(f), cls=_Option, **_details(f.metadata["setting"], default))(
                function
            )
            if f.metadata["setting"].formerly:
                function = click.option(f.metadata["setting"].formerly, hidden=True)(function)
        return function

    return decorate


def _names(f: dataclasses.Field[Any]) -> list[str]:
    how = f.metadata["setting"]
    return [name for name in (how.short, flag_of(f.name, how), f.name) if name]


def _details(how: Setting, default: Any) -> dict[str, Any]:
    """Return what click is told of an option."""
    details: dict[str, Any] = {"help": how.help, "group": how.group}
    metavar = how.metavar or _METAVAR.get(how.kind)
    if how.kind == "flag":
        return details | {"is_flag": True}
    several: dict[str, Any] = {"numbers": float, "rasters": _Named(), "columns": str, "files": str}
    if how.kind in several:
        return details | {"type": several[how.kind], "multiple": True, "metavar": metavar}
    if how.kind == "choice":
        details["type"] = click.Choice(how.choices)
    elif how.kind == "features":
        details["type"] = _Features()
    elif how.kind == "share":
        details["type"] = _Share()
    elif how.kind == "interval":
        details["type"] = _Interval()
    else:
        number = int if isinstance(default, int) else float
        details |= {"type": number if how.kind == "number" else str, "metavar": metavar}
    if default is MISSING or how.always:
        return details | {"required": True}
    return details | {"default": default, "show_default": default not in (None, "")}


def chosen(options: type[Chosen], values: Mapping[str, Any]) -> Chosen:
    """Return the options that click has read."""
    known: dict[str, Any] = {}
    for f in dataclasses.fields(options):
        how, value = f.metadata["setting"], values.get(f.name)
        before = values.get(how.formerly.lstrip("-").replace("-", "_")) if how.formerly else None
        if before is not None and value is None:
            click.echo(f"{how.formerly} is now called {flag_of(f.name, how)}.", err=True)
            value = before
        if how.kind == "flag":
            value = how.sets if value else None
        elif how.kind == "rasters":
            value = _by_name(f.name, value or (), over_time=values.get("time") is not None)
        elif how.kind == "files":
            value = value[0] if value and len(value) == 1 else list(value or ()) or None
        if value not in (None, {}):
            known[f.name] = value
    return options(**known)


def _by_name(option: str, pairs: Iterable[tuple[str, str]], *, over_time: bool) -> dict[str, Any]:
    """Return what was given by name; a name that comes twice is refused, or over time has one for each period."""
    found: dict[str, Any] = {}
    for name, path in pairs:
        if name in found and not over_time:
            raise DataError(
                f"Two rasters are called {name!r}: {found[name][0]} and {path}.",
                option=option,
                found=name,
                remedy="Give each a name of its own.",
            )
        found.setdefault(name, []).append(path)
    return {name: paths[0] if len(paths) == 1 else paths for name, paths in found.items()}


def command_line(options: Options, command: str = "map") -> str:
    """Return a command line that does the same, with names of files only.

    Examples
    --------
    >>> told = MapOptions(points="data/bites.csv", land="coast.gpkg", m=64, thresholds=(0.5,), output="out")
    >>> command_line(told)
    'geobgp map bites.csv --land coast.gpkg --features 64 --threshold 0.5 -o out'
    """
    words = ["geobgp", command] + ([] if options.points is None else [_file_name(options.points)])
    words += ["--land", _file_name(options.land)]
    return shlex.join([*words, *option_words(options)])


def option_words(options: OptionSet) -> list[str]:
    """Return the words of a command line that set what was given, and where the results go."""
    words: list[str] = []
    for name, value in options.given().items():
        how = settings(type(options))[name]
        flag = flag_of(name, how)
        if not (how.help and how.matters):
            continue
        if how.kind == "flag":
            words.append(flag)
        elif how.kind == "rasters":
            each = [(key, path) for key, paths in value.items() for path in _several(paths)]
            words += [w for key, path in each for w in (flag, f"{key}={_file_name(path)}")]
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
    how = (
        settings(RiskFiles)
        | settings(SimulateOptions)
        | settings(TilesOptions)
        | settings(StrataFiles)
        | settings(MapOptions)
    ).get(name)
    if name in _ARGUMENTS:
        return name.upper()
    if how is None or not how.help:
        return name if value is None else f"{name}={value!r}"
    flag = how.short or flag_of(name, how)
    return flag if value is None or how.kind == "flag" else f"{flag} {_text(value)}"


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _file_name(path: Any) -> str:
    return Path(str(path)).name


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- What can be known before a fit, and is: files, the basemap, regions, outlines for orientation -----------


def check_beforehand(options: OptionSet) -> None:
    """Refuse to begin where what is asked for could not be written after the fit.

    Files that are missing; a basemap that there is not; regions without a CRS, a geometry or the column of their names.
    """
    options.check_files()
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
