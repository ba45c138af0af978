"""Options: groups of them, each written once for Python, the shell, the record and the help, and their composition."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_args

from geobgp import validation as validate
from geobgp.errors import DataError, GeometryError, option
from geobgp.text import listed

if TYPE_CHECKING:
    import numpy as np

    from geobgp.data.effects import Covariates
    from geobgp.data.inputs import Effort, Exposure
    from geobgp.inference.families import CountName, TestedName
    from geobgp.prior.kernels import Kernel

# An option is one field of one group, with its default, its `Setting` and its lines in the group's docstring. From
# these come the signature and docstring of every `map_*` that has the group, the option of the shell and its help, what
# is checked before any work begins, the command line in the report, the entry in ``summary.json``, and the name by
# which errors speak of it.

#: What stands for cells drawn around places in place of areas.
VORONOI = "voronoi"
#: Headings under which the shell lists options, in this order.
HEADINGS = ("Data", "Land", "Points", "Time", "Rates and covariates", "Model", "Results")
Heading = Literal["Data", "Land", "Points", "Time", "Rates and covariates", "Model", "Results"]
#: What a value is, in the words of files and the shell.
Kind = Literal[
    "file", "files", "folder", "text", "column", "columns", "crs", "number", "numbers", "features", "interval", "share",
    "choice", "flag", "rasters", "kernel", "client", "column or values", "periods", "span", "day", "small numbers",
    "places", "keys",
]  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])
Features = int | Literal["auto", "full"]

_RULES: dict[str, validate.Rule] = {
    "file": validate.SOURCE,
    "files": validate.SOURCES,
    "folder": validate.PATH,
    "text": validate.TEXT,
    "column": validate.NAME,
    "columns": validate.names("a list of names of columns"),
    "features": validate.either(
        validate.choice("auto", "full"), validate.whole(1), words="'auto', 'full' or a number of features of at least 1"
    ),
    "interval": validate.SUPPRESSED,
    "share": validate.either(
        validate.choice("auto"), validate.real(least=0.0, most=1.0), words="'auto' or a number from 0 to 1"
    ),
    "rasters": validate.COVARIATES,
    "flag": validate.FLAG,
    "kernel": validate.KERNEL,
    "client": validate.CLIENT,
    "column or values": validate.COLUMN_OR_VALUES,
    "periods": validate.EVERY,
    "span": validate.SPAN,
    "day": validate.DAY,
    "small numbers": validate.MIN_COUNT,
    "places": validate.PLACES,
    "keys": validate.KEYS,
}


@dataclass(frozen=True)
class Setting:
    """What there is to know of an option besides its name and default.

    Attributes
    ----------
    help : str
        One line for the shell; empty for what only Python can say.
    kind : str
    heading : str
        In place of that of the group.
    flag, short : str
        Its name in the shell, by default that of Python with dashes; and one of a letter.
    formerly : str
        Another name in the shell, from before; it works, is not listed, and says what it is called now.
    metavar : str
    choices : tuple of str, or callable
        What it can be; the default besides. A callable is called when a value is checked, so that help loads nothing.
    sets : object
        What a flag stands for.
    above, least, below : float
        Numbers must be above, at least, or below this.
    whole : bool
        Whether numbers must be whole; those of a whole default must in any case.
    shape : "point", "line" or "polygon"
        What the features of a file are, where they are of one kind.
    of : str
        The option of the file whose column it names, where that is not what was observed.
    needs : str
        The option without which it has no effect, where it is none `of` which it names a column.
    matters : bool
        Whether the results depend on it.
    always : bool
        Whether it must be given, so that it is not listed among what was given.
    """

    help: str = ""
    kind: Kind = "text"
    heading: Heading | None = None
    flag: str = ""
    short: str = ""
    formerly: str = ""
    metavar: str = ""
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    sets: Any = True
    above: float = -math.inf
    least: float = -math.inf
    below: float = math.inf
    whole: bool = False
    shape: Literal["", "point", "line", "polygon"] = ""
    of: str = ""
    needs: str = ""
    matters: bool = True
    always: bool = False

    def rule(self, name: str, default: Any) -> validate.Rule | None:
        """Return what the value must be; None where anything may be."""
        if self.choices:
            return validate.choice(*(self.choices() if callable(self.choices) else self.choices))
        if self.kind in ("number", "numbers"):
            one = (
                validate.whole(int(self.least))
                if self.whole or isinstance(default, int)
                else validate.real(self.above, self.least, below=self.below)
            )
            return one if self.kind == "number" else validate.numbers(one, f"a list, each {one.words}")
        if self.kind == "crs":
            return validate.Rule("a CRS", lambda value: _check_crs(name, value))
        return _RULES.get(self.kind)


def setting(help: str = "", kind: Kind = "text", *, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field of an option."""
    return field(default=default, metadata={"setting": Setting(help, kind, **more)})


def _families(kind: str) -> tuple[str, ...]:
    """Return the names of the families of a kind of data."""
    from geobgp.inference import families

    return get_args(getattr(families, kind))


def _check_crs(name: str, value: Any) -> Any:
    from geobgp.land.crs import as_crs

    if not (name == "crs" and isinstance(value, str) and value.lower() == "local"):
        as_crs(value, name)
    return value


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OptionSet:
    """Options, each a field with a `Setting`; wrong values are refused when it is made.

    A group derives from this; the options of a command derive from several groups. Each class may check its own options
    in a method `_check`, which is called once all single values are right.
    """

    #: Options of its groups, or of other commands, that have no meaning here, and why.
    refused: ClassVar[Mapping[str, str]] = {}

    #: Under which heading the options of a group are listed.
    _heading: ClassVar[Heading] = "Data"

    def __init_subclass__(cls, heading: Heading = "Data") -> None:
        cls._heading = heading
        dataclass(frozen=True, eq=False, kw_only=True, repr=False)(cls)

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is f.default:
                continue
            if f.name in self.refused:
                self._refuse(f.name)
            rule = f.metadata["setting"].rule(f.name, f.default)
            if rule is not None:
                self._set(f.name, rule(f.name, value))
        for cls in reversed(type(self).__mro__):
            if "_check" in vars(cls):
                vars(cls)["_check"](self)
        self._refuse_without_effect()

    def _refuse_without_effect(self) -> None:
        """Refuse options that belong to others which are as they are by default."""
        usual = {f.name: f.default for f in dataclasses.fields(self)}
        for name in self.given():
            how = type(self).__dataclass_fields__[name].metadata["setting"]
            owner = how.needs or how.of
            if owner in usual and getattr(self, owner) is usual[owner]:
                raise DataError(
                    f"{option(name)} has no effect without {option(owner)}.",
                    option=name,
                    remedy=f"Give {option(owner)}, or leave {option(name)} out.",
                )

    @classmethod
    def of(cls, function: str, **given: Any) -> Self:
        """Return the options that a function was given; those that it has not are refused with the reason."""
        known = settings(cls)
        for name in given:
            if name in cls.refused:
                cls._refuse(name)
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
        return cls(**given)

    @classmethod
    def _refuse(cls, name: str) -> None:
        raise DataError(f"{option(name)} {cls.refused[name]}.", option=name, remedy=f"Leave {option(name)} out.")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def pick(self, *groups: type[OptionSet]) -> dict[str, Any]:
        """Return the options of some groups by name, as other functions take them."""
        names = {f.name for group in groups for f in dataclasses.fields(group)}
        return {name: getattr(self, name) for name in settings(type(self)) if name in names}

    def given(self) -> dict[str, Any]:
        """Return the options that are not as they are by default, by name; none that must be given."""
        optional = (f for f in dataclasses.fields(self) if f.default is not MISSING)
        named = (f for f in optional if not f.metadata["setting"].always)
        return {f.name: value for f in named if not _same(value := getattr(self, f.name), f.default)}

    def sources(self) -> dict[str, Any]:
        """Return what is to be read, files and data in memory, by what it is for."""
        named: dict[str, Any] = {}
        for name, how in settings(type(self)).items():
            value = getattr(self, name)
            if how.kind == "file" or (how.kind == "column or values" and hasattr(value, "__array__")):
                named[name] = value
            elif how.kind == "files":
                named |= _by_number(name, value)
            elif how.kind == "places":
                named |= _by_level(name, value)
            elif how.kind == "rasters":
                for key, given in (value or {}).items():
                    named |= _by_number(f"covariate {key}", _read_from(given))
        return {name: value for name, value in named.items() if value is not None}

    def files(self) -> dict[str, str]:
        """Return the files that are to be read, by what they are for."""
        paths: dict[str, str] = {}
        for name, how in settings(type(self)).items():
            value = getattr(self, name)
            if how.kind in ("file", "files"):
                paths |= _paths(name, value)
            elif how.kind == "places":
                for what, one in _by_level(name, value).items():
                    paths |= _paths(what, one)
            elif how.kind == "rasters":
                for key, given in (value or {}).items():
                    paths |= _paths(f"covariate {key}", _read_from(given))
        return paths

    def check_files(self) -> None:
        """Refuse to begin when a file is missing."""
        from geobgp.files import check_exists

        for what, path in self.files().items():
            check_exists(path, what)

    def record(self, *, needed: bool = False, matters: bool = False) -> dict[str, Any]:
        """Return what was given as plain data; of files their names without folders, as results travel.

        With `needed` what must be given is there too, with `matters` only what results depend on.
        """
        how = settings(type(self))
        always = {name: getattr(self, name) for name, one in how.items() if one.always and needed}
        given = {name: value for name, value in always.items() if value is not None} | self.given()
        return {
            name: _plain(value, how[name].kind) for name, value in given.items() if how[name].matters or not matters
        }


# -- Groups ----------------------------------------------------------------------------------------------------


class LandOptions(OptionSet, heading="Land"):
    """The land.

    Parameters
    ----------
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water separates; see `Domain.from_polygons`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of observations (2,000 to
        16,000 of them) on, they are halved for as long as the observations gain by it and `max_seconds` allow;
        `posterior.tried` has what was compared.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    """

    land: Any = setting("Polygons of the land.", "file", always=True, shape="polygon")
    water: Any = setting("Polygons to take out of the land.", "file", shape="polygon")
    barriers: Any = setting("Lines that information does not cross.", "file", shape="line")
    bridges: Any = setting("Lines that join what water separates.", "file", shape="line")
    cell_size: float | None = setting("Side of a cell in metres; by default chosen.", "number", metavar="M", above=0.0)
    crs: Any = setting("Projected CRS of the map, or 'local'; by default chosen.", "crs")
    land_crs: Any = setting("CRS of land, water, barriers if their files do not say.", "crs")
    min_coverage: float = setting(default=0.02, kind="number", least=0.0, below=1.0)

    def _check(self) -> None:
        if self.land is None and settings(type(self))["land"].always:
            raise DataError("There is no land to map.", option="land", remedy=f"Give its polygons: {option('land')}.")


class ReadingOptions(OptionSet, heading="Points"):
    """How tables of points are read, and points moved to land.

    Parameters
    ----------
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    """

    longitude: str | None = setting("Column of a table with the longitude.", "column", needs="points")
    latitude: str | None = setting("Column of a table with the latitude.", "column", needs="points")
    easting: str | None = setting("Column of a table with the easting.", "column", needs="points")
    northing: str | None = setting("Column of a table with the northing.", "column", needs="points")
    points_crs: Any = setting("CRS of the points, if their file does not state it.", "crs", needs="points")
    layer: str | None = setting(
        "Layer of the points, in a file with several. (Other files: FILE|layername=NAME.)",
        "column",
        metavar="NAME",
        needs="points",
    )
    on_water: Literal["nearest", "drop", "error"] = setting(
        "What to do with points off the land.",
        "choice",
        default="nearest",
        choices=("nearest", "drop", "error"),
        needs="points",
    )
    max_snap: float | None = setting(
        "How far points off the land are moved, in metres; two cells if not given.",
        "number",
        metavar="M",
        least=0.0,
        needs="points",
    )
    chunksize: int = setting(default=200_000, kind="number", least=1)

    def _check(self) -> None:
        from geobgp.data.points import check_snap

        check_snap(self.on_water, self.max_snap)
        for pair in (("longitude", "latitude"), ("easting", "northing")):
            if len({getattr(self, name) is None for name in pair}) == 2:
                both = " and ".join(option(name, python=f"{name}=") for name in pair)
                raise GeometryError(f"points: name both columns, {both}, or neither.", option=pair[0])


class TimeOptions(OptionSet, heading="Time"):
    """Periods.

    Parameters
    ----------
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format, absent
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    reported : str, optional
        The column with the date of each event's report (of counts by area: the period of their report). The last
        periods, of which not all events are reported yet, are then nowcasts: what is expected of them in the end.
    as_of : date or str, optional
        The day until which reports are known; later ones are ignored. By default the last day in the data.
    delay_by : str, optional
        A column whose values have a distribution of delays each, such as the region.
    """

    time: str | np.ndarray | None = setting(
        "The column of dates of the points (or areas): a map for each period.", "column or values", metavar="COLUMN"
    )
    every: Any = setting(
        "How long a period is: day, week, epiweek (from Sunday, MMWR), month, quarter, year, or edges such as "
        "2020-01-01,2020-07-01,2021-01-01.",
        "periods",
        metavar="PERIOD",
    )
    between: Any = setting(
        "First and last period, such as 2015-01/2020-12; by default those of the events.", "span", metavar="FIRST/LAST"
    )
    date_format: str | None = setting(
        "How dates are written that are not year first, such as %d/%m/%Y.", "column", metavar="FORMAT"
    )
    absent: Literal["zero", "unknown"] | None = setting(
        "What a missing row of an area in a period means.", "choice", choices=("zero", "unknown"), needs="areas"
    )
    dynamics: Literal["auto", "separable", "diffusive"] = setting(
        "Whether patches of all sizes fade alike, or small ones sooner; by default the data decide.",
        "choice",
        default="auto",
        choices=("auto", "separable", "diffusive"),
    )
    reported: str | None = setting(
        "The column with the date of each event's report: the last periods, which are incomplete, become nowcasts.",
        "column",
    )
    as_of: Any = setting(
        "Ignore what was reported after this day, such as 2020-05-01; by default the last day in the data.",
        "day",
        metavar="DATE",
    )
    delay_by: str | None = setting("A column that gives groups, each with its own distribution of delays.", "column")

    def _check(self) -> None:
        given = {f.name for f in dataclasses.fields(TimeOptions) if getattr(self, f.name) != f.default}
        if self.time is None and given:
            name = next(f.name for f in dataclasses.fields(TimeOptions) if f.name in given)
            raise DataError(
                f"{option(name)} belongs to events with dates.",
                option=name,
                remedy=f"Name the column of dates: {option('time')}.",
            )
        for name in ("as_of", "delay_by"):
            if getattr(self, name) is not None and self.reported is None:
                raise DataError(
                    f"{option(name)} belongs to events with the date of their report.",
                    option=name,
                    remedy=f"Name the column of these dates: {option('reported')}.",
                )
        if self.time is not None:
            from geobgp.data.periods import Clock

            Clock.asked(self.time, self.every, self.between, self.date_format)


class ExposureOptions(OptionSet, heading="Rates and covariates"):
    """What events are counted per.

    Parameters
    ----------
    exposure, exposure_column
        What events are counted per; as for `LGCP`.
    min_people : float
        Hide cells and regions with fewer people than this.
    """

    exposure: Exposure | None = setting(
        "People per pixel (raster) or per area (polygons): events become a rate, and surveys weight regions by people; "
        "repeated, one for each period.",
        "files",
    )
    exposure_column: str | None = setting("The column of polygons with the exposure.", "column", of="exposure")
    min_people: float = setting(
        "Hide cells and regions with fewer people than this.",
        "number",
        heading="Results",
        default=0.0,
        metavar="K",
        least=0.0,
    )

    def _check(self) -> None:
        if self.min_people and self.exposure is None:
            raise DataError(
                f"{option('min_people')} hides where few people live.",
                option="min_people",
                found=self.min_people,
                remedy=f"Say where people live: {option('exposure')}.",
            )


class EffortOptions(OptionSet, heading="Rates and covariates"):
    """How much of what happens is seen.

    Parameters
    ----------
    effort, effort_column : raster, polygons (with a column) or array, optional
        The share of events that is reported, from 0 to 1. The map is of what would be seen with full effort; where
        there is none the data say nothing, and intervals are wide. Over periods it may be a list (or a mapping by
        the periods' labels) with one for each. As for `LGCP`.
    """

    effort: Effort | None = setting(
        "The share of events that is reported, 0 to 1 (raster or polygons): the map is of all events; repeated, one "
        "for each period.",
        "files",
    )
    effort_column: str | None = setting("The column of polygons with the effort.", "column", of="effort")


class CovariateOptions(OptionSet, heading="Rates and covariates"):
    """What may explain the map.

    Parameters
    ----------
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    """

    covariates: Covariates | None = setting(
        "A raster that may explain the map; may be repeated, over time with one name for each period. Codes: "
        "'NAME=RASTER|levels'; a curve: '|smooth'; groups: '|group'; distance over land: "
        "'NAME=PLACES|distance|smooth'; the interaction of two: 'NAME=A,B|interaction'.",
        "rasters",
        flag="--covariate",
    )
    fill_missing: Literal["mean"] | None = setting(
        "Give places without a covariate the mean of the others.",
        "flag",
        choices=("mean",),
        sets="mean",
        needs="covariates",
    )

    def _check(self) -> None:
        if hasattr(self.covariates, "columns"):  # a table: its columns by name
            from geobgp.data.effects import named_covariates

            self._set("covariates", named_covariates(self.covariates))


class PriorOptions(OptionSet, heading="Model"):
    """The prior, and what is done with its hyperparameters.

    Parameters
    ----------
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the boundary; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_features : int
        The most features that are tried when m is chosen.
    """

    m: Features = setting("How finely the map can vary.", "features", default="auto", flag="--features")
    boundary: Literal["neumann", "dirichlet"] = setting(
        "At the boundary of the land the map levels off freely, or is held at its mean.",
        "choice",
        default="neumann",
        choices=("neumann", "dirichlet"),
    )
    permeability: float | Literal["auto"] = setting(
        "How far information crosses water, from 0 (not at all) to 1 (as over land); by default the data decide.",
        "share",
        default="auto",
    )
    kernel: Kernel | None = setting(kind="kernel")
    hyper: Literal["map", "integrate"] = setting(
        "Take the best hyperparameters, or average over them.", "choice", default="map", choices=("map", "integrate")
    )
    max_features: int = setting(default=1024, kind="number", least=1)

    def _check(self) -> None:
        if self.boundary == "dirichlet" and self.permeability not in ("auto", 0):
            raise DataError(
                f"Permeable water needs a Neumann condition; found boundary='dirichlet' and a permeability of "
                f"{self.permeability:g}.",
                option="permeability",
                found=self.permeability,
                remedy=f"Leave {option('boundary')} out, or {option('permeability')}.",
            )
        if self.m != "auto" and self.max_features != PriorOptions.max_features:
            raise DataError(
                f"{option('max_features')} limits the features that are tried, and {option('m', self.m)} says how "
                "many there are.",
                option="max_features",
                found=self.max_features,
                remedy="Leave out one of them.",
            )
        if self.m == "full" and self.kernel is not None and not self.kernel.sparse:
            raise DataError(
                f"Full resolution needs Matern(1.0) or Matern(2.0); found {self.kernel.name}.",
                option="kernel",
                found=self.kernel,
                remedy="Use one of these, or features.",
            )


class ComputeOptions(OptionSet, heading="Model"):
    """How long it may take, and what is kept and shared.

    Parameters
    ----------
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    quick : bool
        For a first look: one fit on coarse cells and one on the usual ones, at full resolution where it can be. Neither
        finer cells, open water nor other models are tried.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    """

    max_seconds: float = setting(
        "Begin no finer or larger model that would end after this time.", "number", default=60.0, metavar="S", least=0.0
    )
    quick: bool = setting(
        "One fit on coarse cells and one on the usual ones, for a first look: nothing else is tried.",
        "flag",
        default=False,
    )
    cache: bool = setting(
        "Neither read nor keep computed features.",
        "flag",
        default=True,
        flag="--no-cache",
        choices=(True, False),
        sets=False,
        matters=False,
    )
    client: Any = setting(
        "Address of a Dask scheduler whose workers do independent work: parts of points, strata, tiles, mixtures.",
        "client",
        flag="--scheduler",
        metavar="ADDRESS",
        matters=False,
    )


class WorkerOptions(OptionSet, heading="Model"):
    """Processes.

    Parameters
    ----------
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    """

    n_jobs: int | None = setting(
        "Processes to use where there is no scheduler; one for each core by default.",
        "number",
        flag="--jobs",
        least=1,
        whole=True,
        matters=False,
    )


class ResultOptions(OptionSet, heading="Results"):
    """How results are shown.

    Parameters
    ----------
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
    min_count : int or "cdc", "nhs", "ons"
        Hide cells and regions based on fewer events than this, or by the rule of an office; see
        `Posterior.protected`.
    protect : "hide" or "smooth"
        Hide small numbers, or smooth the map until hardly any are left.
    """

    title: str = setting("Title of map and report.", default="", metavar="TEXT")
    interval: float = setting(
        "Probability of all intervals, such as 0.95.", "number", default=0.9, metavar="P", least=0.5, below=1.0
    )
    min_count: int | str = setting(
        "Hide cells and regions based on fewer events than this; or by the rule of an office: cdc, nhs, ons.",
        "small numbers",
        default=0,
        metavar="K",
    )
    protect: Literal["hide", "smooth"] = setting(
        "Hide small numbers, or smooth the map until hardly any are left.",
        "choice",
        default="hide",
        choices=("hide", "smooth"),
        needs="min_count",
    )


class UnitOptions(OptionSet, heading="Results"):
    """Units of rates.

    Parameters
    ----------
    units : str, optional
        What events are shown per: "per 100,000", "per 1,000 women", "per million" of a population; "per ha", "per 100
        km²" of land; "relative risk", the ratio to the average over all people. By default per person or per km²;
        expected cases as exposure always give a relative risk. Maps, tables, files and thresholds are all in it;
        `Posterior.in_units` changes it later.
    """

    units: str | None = setting(
        "What events are shown per: 'per 100,000', 'per ha', or 'relative risk'.", metavar="TEXT"
    )


# -- What was observed -----------------------------------------------------------------------------------------


class PlaceOptions(OptionSet, heading="Data"):
    """Events whose places are areas.

    Parameters
    ----------
    places : GeoDataFrame or path, "voronoi", or a mapping of levels to these
        The areas that are the places of events: polygons of postcodes, or points around which cells are drawn; or
        "voronoi", cells around the places that many points share. The events of an area are one observation. Several
        levels of precision have a name each, {"postcode": "postcodes.gpkg", "district": "districts.gpkg"}. See
        `bin_places`.
    key : str, or a mapping of levels to str
        The column of points and of places that says which is whose; by default the name of the level.
    precision : str, optional
        The column of the points that says how precise the place of each is: "exact", or the name of a level.
    """

    places: Any = setting(
        "Areas that are the places of events, such as postcodes (or points of them); 'voronoi' draws cells around "
        "shared places; repeated as LEVEL=FILE for several levels.",
        "places",
        metavar="[LEVEL=]FILE",
    )
    key: str | Mapping[str, str] | None = setting(
        "The column of points and places with the key; repeated as LEVEL=COLUMN.", "keys", metavar="[LEVEL=]COLUMN"
    )
    precision: str | None = setting("The column that says how precise each place is: exact, or a level.", "column")

    def _check(self) -> None:
        if self.places is None:
            for name in ("key", "precision"):
                if getattr(self, name) is not None:
                    raise DataError(
                        f"{option(name)} belongs to events whose places are areas.",
                        option=name,
                        remedy=f"Give the areas: {option('places')}.",
                    )
        elif isinstance(self.places, Mapping) and self.precision is None:
            raise DataError(
                f"{option('places')} has {len(self.places)} {'levels' if len(self.places) > 1 else 'level'}, and "
                "nothing says which of them each row is of.",
                option="precision",
                remedy=f"Name the column that says so: {option('precision')}.",
            )
        elif self.key is None and self.precision is None and _by_level("places", self.places):
            raise DataError(
                "Which column says in which place an event was?",
                option="key",
                remedy=f"Name one that {option('points')} and {option('places')} both have: {option('key')}.",
            )


class CountOptions(PlaceOptions, heading="Data"):
    """Events: points, and counts by area.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, (k, 2) array, path, or iterable of chunks
        In any CRS; see `bin_points`. None where only counts by area are known.
    areas, count : GeoDataFrame or path, and the name of a column
        Polygons with a number of events each, in place of points: districts, counties. Together with points they count
        the events that have no place, so that nobody is counted twice. See `bin_areas`.
    suppressed : (int, int), optional
        Between which numbers the counts of areas without a number are known to lie.
    weights : str or array, optional
        A column or one number per point, summed in place of ones.
    likelihood : "poisson" or "negative-binomial"
        Whether counts vary about their mean as independent events do, or more; the summary says whether more spread was
        needed.
    """

    points: Any = setting("The points.", kind="file", always=True, shape="point")
    areas: Any = setting(
        "Polygons with a number of events each, instead of points or in addition.", "file", shape="polygon"
    )
    count: str | None = setting("The column of the areas with the number of events.", "column", of="areas")
    suppressed: tuple[int, int] | None = setting(
        "The interval that suppressed numbers lie in, such as 1-4.", "interval", metavar="LOW-HIGH"
    )
    weights: str | np.ndarray | None = setting(
        "A column to sum instead of counting points.",
        "column or values",
        heading="Points",
        metavar="COLUMN",
        needs="points",
    )
    likelihood: CountName = setting(
        "Distribution of the counts about their mean: Poisson, or overdispersed.",
        "choice",
        heading="Model",
        default="poisson",
        metavar="[poisson|negative-binomial]",
        choices=lambda: _families("CountName"),
    )

    def _check(self) -> None:
        if self.areas is None:
            if self.points is None:
                both = f"{option('areas')} with {option('count')}"
                raise DataError("There is nothing to map.", option="points", remedy=f"Give points, or {both}.")
            for name in ("count", "suppressed"):
                if getattr(self, name) is not None:
                    raise DataError(
                        f"{option(name)} belongs to counts by area.",
                        option=name,
                        remedy=f"Give their polygons: {option('areas')}.",
                    )
        elif self.places is not None:
            raise DataError(
                f"{option('areas')} are counts without rows of their own, and {option('places')} are places of rows.",
                option="places",
                remedy="Give a row for each event, or counts by area alone.",
            )
        elif self.count is None:
            raise DataError(
                "Which column of the areas holds the number of events?",
                option="count",
                remedy=f"Name it with {option('count')}.",
            )
        if self.places is not None and getattr(self, "absent", None) is not None:
            raise DataError(
                f"{option('absent')} belongs to counts by area: places without events in a period have none.",
                option="absent",
                remedy=f"Leave {option('absent')} out.",
            )


class PersonOptions(OptionSet, heading="Data"):
    """Persons: cases and controls.

    Parameters
    ----------
    cases, controls : GeoDataFrame, DataFrame, (k, 2) array or path
        A row per person, in any CRS. Controls are a random sample of the people whom the cases come from.
    status : str, optional
        The column that says who of one table is a case: then `cases` holds both, and `controls` is left out. It is
        true or false, 1 or 0, or "case" and "control".
    confounders : sequence of str
        Columns of both tables, numbers or levels: what differs between persons and not between places, such as age.
        The map is then of the risk at their average.
    """

    cases: Any = setting("The persons who fell ill.", "file", always=True, shape="point")
    controls: Any = setting("Some who did not.", "file", always=True, shape="point")
    status: str | None = setting("The column that says who of one table is a case.", "column")
    confounders: Sequence[str] = setting(
        "A column of both tables to adjust for, a number or levels; may be repeated.",
        "columns",
        heading="Rates and covariates",
        default=(),
        flag="--confounder",
    )

    def __post_init__(self) -> None:
        if isinstance(self.confounders, str):
            self._set("confounders", (self.confounders,))
        super().__post_init__()

    def _check(self) -> None:
        if self.cases is None:
            raise DataError("There are no cases to map.", option="cases", remedy="Give a row per person.")
        if twice := sorted({name for name in self.confounders if list(self.confounders).count(name) > 1}):
            raise DataError(
                f"Confounders that are named twice: {listed(twice)}.",
                option="confounders",
                found=twice[0],
                remedy="Name each once.",
            )
        if (self.controls is None) == (self.status is None):
            raise DataError(
                f"Cases are compared with {option('controls')}, or with the others of one table, which "
                f"{option('status')} tells apart; found {'neither' if self.status is None else 'both'}.",
                option="controls",
                remedy="Give one of the two.",
            )


class SampleOptions(OptionSet, heading="Data"):
    """Measurements: samples with a value each.

    Parameters
    ----------
    samples : GeoDataFrame, DataFrame or path
        A row for each measurement, in any CRS; several may be of one place.
    value : str
        The column with what was measured.
    units : str, optional
        Its unit, such as "µg/g", for maps, tables and files.
    transform : "auto", "none", "sqrt" or "log"
        What is modelled: the value, its square root, or its logarithm; all results are of the value itself. "auto"
        takes the one with the most evidence, of values that are all above zero.
    """

    samples: Any = setting("The samples.", kind="file", always=True, shape="point")
    value: str | None = setting("The column with what was measured.", "column", always=True)
    units: str | None = setting("The unit of the values, such as 'µg/g'.", heading="Results", metavar="TEXT")
    transform: Literal["auto", "none", "sqrt", "log"] = setting(
        "Model the value, its square root or its logarithm; by default the data decide.",
        "choice",
        heading="Model",
        default="auto",
        choices=("auto", "none", "sqrt", "log"),
    )

    def _check(self) -> None:
        if self.samples is None:
            raise DataError("There are no samples to map.", option="samples", remedy="Give a row for each.")
        if self.value is None:
            raise DataError(
                "Which column holds what was measured?", option="value", remedy=f"Name it with {option('value')}."
            )


class SurveyOptions(OptionSet, heading="Data"):
    """Surveys: how many were positive of how many tested, at places.

    Parameters
    ----------
    surveys : GeoDataFrame, DataFrame or path
        A row for each site, in any CRS; several may be of one place.
    positive, tested : str
        The columns with the number of positives and of those tested.
    likelihood : "auto", "binomial" or "beta-binomial"
        Whether sites vary about the map by chance alone, or more. "auto" takes the beta-binomial where it gains more
        than 2 nats.
    """

    surveys: Any = setting("The surveys.", kind="file", always=True, shape="point")
    positive: str | None = setting("The column with the number of positives.", "column", always=True)
    tested: str | None = setting("The column with the number of those tested.", "column", always=True)
    likelihood: Literal["auto"] | TestedName = setting(
        "Whether sites vary by chance alone, or more; by default the data decide.",
        "choice",
        heading="Model",
        default="auto",
        metavar="[auto|binomial|beta-binomial]",
        choices=lambda: ("auto", *_families("TestedName")),
    )

    def _check(self) -> None:
        if self.surveys is None:
            raise DataError("There are no surveys to map.", option="surveys", remedy="Give a row for each.")
        for name, what in (("positive", "positives"), ("tested", "those tested")):
            if getattr(self, name) is None:
                raise DataError(
                    f"Which column holds the number of {what}?", option=name, remedy=f"Name it with {option(name)}."
                )


# -- What commands take: groups of options ---------------------------------------------------------------------


#: Why a map over time has no full resolution.
OVER_TIME = "A map over time needs features: every period has a weight for each of them."


class MappingOptions(
    ResultOptions, ComputeOptions, PriorOptions, CovariateOptions, EffortOptions, ReadingOptions, LandOptions
):
    """What every run takes that makes one map, whatever was observed."""

    #: What needs features, and so has no full resolution: why, where it is asked for.
    def _needs_features(self) -> str:
        return ""

    def _check(self) -> None:
        reason = self._needs_features()
        if reason and self.m == "full":
            raise DataError(reason, option="m", found="full", remedy=f"Leave {option('m')} out, or give a number.")


class Options(MappingOptions, UnitOptions, ExposureOptions, TimeOptions, CountOptions):
    """What `map_intensity` takes; see there.

    Examples
    --------
    >>> import shapely
    >>> options = Options(points=[(1.0, 2.0)], land=shapely.box(0, 0, 4, 4), crs="local", m=16)
    >>> options.given()
    {'crs': 'local', 'm': 16}
    >>> Options(points="bites.csv", land="coast.gpkg", boundary="open")
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: boundary must be 'neumann' or 'dirichlet'; found 'open'.
    """

    def _needs_features(self) -> str:
        return OVER_TIME if self.time is not None else ""

    def _check(self) -> None:
        from geobgp.units import check_units

        check_units(self.units, self.exposure is not None)
        if self.reported is None:
            return
        if self.delay_by is not None and self.places is not None:
            raise DataError(
                f"{option('delay_by')} does not go with {option('places')}: of an area it is not known which of its "
                "groups lives where.",
                option="delay_by",
                remedy=f"Leave {option('delay_by')} out: one distribution of delays for all.",
            )
        whole = "Delays are read of one table, a row for each event or for each number of events."
        for name in ("time", "weights"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise DataError(
                    f"With {option('reported')}, {option(name)} is a column of the same table.",
                    option=name,
                    found=type(value).__name__,
                )
        for name, found in (("areas", self.points is not None), ("suppressed", True)):
            if getattr(self, name) is not None and found:
                raise DataError(
                    f"{option(name)} does not go with {option('reported')} here. {whole}",
                    option=name,
                    remedy=f"Leave out {option(name)} or {option('reported')}.",
                )


#: Options of events whose places are areas.
_OF_PLACES = ("places", "key", "precision")
#: Options of events that are reported late.
_OF_REPORTS = ("reported", "as_of", "delay_by")


class RiskOptions(MappingOptions, TimeOptions, PersonOptions):
    """What `map_risk` takes; see there."""

    def _needs_features(self) -> str:
        return OVER_TIME if self.time is not None else ""

    refused: ClassVar[Mapping[str, str]] = (
        dict.fromkeys(
            _OF_REPORTS,
            "does not go with cases and controls: a risk compares them, and both would have to be reported as late",
        )
        | dict.fromkeys(_OF_PLACES, "does not go with cases and controls, who are persons with a place each")
        | {
            "exposure": "has no meaning for cases and controls: the controls are a sample of all people",
            "exposure_column": "has no meaning for cases and controls: the controls are a sample of all people",
            "min_people": "has no meaning for cases and controls: the number of people is not known",
            "areas": "does not go with cases and controls, who are persons with a place each",
            "count": "belongs to counts by area",
            "suppressed": "belongs to counts by area",
            "absent": "belongs to counts by area",
            "weights": "does not go with cases and controls: every row is a person",
            "likelihood": "belongs to counts: a person is a case or is none",
            "units": "has no meaning for cases and controls: how many people there are is not known, so that the map "
            "is of the relative risk",
        }
    )


#: Options of other kinds of data that mean nothing of what was observed at places, and why.
_OF_EVENTS: dict[str, str] = (
    dict.fromkeys(("areas", "count", "suppressed", "absent"), "belongs to counts of events by area")
    | dict.fromkeys(_OF_PLACES, "belongs to events that are counted; here each place has a value of its own")
    | dict.fromkeys(("effort", "effort_column"), "belongs to events, of which some are not reported")
    | dict.fromkeys(
        _OF_REPORTS, "belongs to numbers of events: of a sample or a survey that is not in yet nothing is counted"
    )
    | {"weights": "belongs to events; of several observations at a place each is a row"}
)


class ValueOptions(MappingOptions, TimeOptions, SampleOptions):
    """What `map_values` takes; see there."""

    def _needs_features(self) -> str:
        return OVER_TIME if self.time is not None else ""

    refused: ClassVar[Mapping[str, str]] = (
        _OF_EVENTS
        | dict.fromkeys(
            ("exposure", "exposure_column", "min_people"),
            "does not go with measurements: means of regions are over their land",
        )
        | dict.fromkeys(("min_count", "protect"), "hides small numbers of events, and these are measurements")
        | {"likelihood": "is Gaussian, with a noise that is learned"}
    )


class PrevalenceOptions(MappingOptions, ExposureOptions, TimeOptions, SurveyOptions):
    """What `map_prevalence` takes; see there."""

    def _needs_features(self) -> str:
        return OVER_TIME if self.time is not None else ""

    refused: ClassVar[Mapping[str, str]] = (
        _OF_EVENTS
        | dict.fromkeys(("min_count", "protect"), "hides small numbers of events, and these are surveys")
        | {"units": "has no meaning for a prevalence, which is a share", "transform": "belongs to measurements"}
    )


class StratumOptions(OptionSet, heading="Data"):
    """Strata.

    Parameters
    ----------
    by : str or sequence of str
        A column, or several: one map for each combination of their values that there is.
    pool : bool
        Take the log lengthscales and log sds of the strata for draws from a normal distribution whose mean and spread
        are learned from all of them, so that strata with few points borrow from the others. By default each is free.
        What they are pooled at suits strata of their size best, and need not be what suits all points together.
    """

    #: The options of one map of all strata together; what they call the data; and which of them say that it is these.
    kind: ClassVar[type[MappingOptions]]
    data: ClassVar[str] = "points"
    marks: ClassVar[tuple[str, ...]] = ()

    by: Sequence[str] = setting(
        "A column of the data: one map for each of its values; may be repeated.", "columns", default=(), always=True
    )
    pool: bool = setting(
        "Let strata with few points borrow lengthscale and sd from the others.", "flag", heading="Model", default=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            self._set("by", (self.by,))
        super().__post_init__()

    def _check(self) -> None:
        if not self.by:
            raise DataError(
                "Which column of the points makes the strata?", option="by", remedy=f"Name it with {option('by')}."
            )

    def pooled(self) -> MappingOptions:
        """Return the options of the map of all strata together."""
        names = [f.name for f in dataclasses.fields(self.kind)]
        shown = {"hyper": "map", "min_count": 0, "protect": "hide", "min_people": 0.0}
        return self.kind(
            **{name: shown[name] if name in shown else getattr(self, name) for name in names}  # type: ignore[arg-type]
        )


class StrataOptions(Options, StratumOptions, WorkerOptions):
    """What `map_strata` takes of points and of counts by area; see there."""

    kind = Options
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        _OF_REPORTS, "does not go with strata, whose delays may differ: map those of each stratum by themselves"
    )

    def _check(self) -> None:
        from geobgp.data.sources import check_one

        if self.time is None:
            covariates = (("covariates", value) for value in (self.covariates or {}).values())
            for name, value in (("exposure", self.exposure), ("effort", self.effort), *covariates):
                check_one(name, value, "a map by stratum without dates", "Give one for all strata.")
        for name in ("weights", "time"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                raise DataError(
                    f"{option(name)} of strata is a column of the points.",
                    option=name,
                    found=type(getattr(self, name)).__name__,
                )


class RiskStrataOptions(RiskOptions, StratumOptions, WorkerOptions):
    """What `map_strata` takes of cases and controls; see there."""

    kind, data, marks = RiskOptions, "cases", ("cases", "controls", "status")


class ValueStrataOptions(ValueOptions, StratumOptions, WorkerOptions):
    """What `map_strata` takes of measured values; see there."""

    kind, data, marks = ValueOptions, "samples", ("samples", "value")


class PrevalenceStrataOptions(PrevalenceOptions, StratumOptions, WorkerOptions):
    """What `map_strata` takes of surveys; see there."""

    kind, data, marks = PrevalenceOptions, "surveys", ("surveys", "positive", "tested")


#: Strata of each kind of data; those of counts, which need no mark, are the first.
STRATA: tuple[type[StratumOptions], ...] = (
    StrataOptions, RiskStrataOptions, ValueStrataOptions, PrevalenceStrataOptions,
)  # fmt: skip


class AnyStrataOptions(StrataOptions, PersonOptions, SampleOptions, SurveyOptions):
    """All that `map_strata` may be given: for its signature and its help."""


def strata_of(function: str, kinds: Sequence[type[StratumOptions]] = STRATA, **given: Any) -> Any:
    """Return the options of strata of the kind of data that was given; those of other kinds are refused.

    Parameters
    ----------
    function : str
        For messages.
    kinds : sequence of type
        The first one is taken where nothing says that it is another.
    **given
        ``points`` may stand for the data, whatever their kind.
    """
    usual = {f.name: f.default for f in dataclasses.fields(AnyStrataOptions)}
    there = {name: value for name, value in given.items() if name not in usual or value is not usual[name]}
    kind = next((k for k in kinds if any(name in there for name in k.marks)), kinds[0])
    if kind.data not in there and "points" in there:
        there[kind.data] = there.pop("points")
    elif kind.data != "points" and "points" in there:
        raise DataError(
            f"There are both {option('points')} and {option(kind.data)}.",
            option="points",
            remedy="Strata are of one kind of data: leave out one of them.",
        )
    known = {name for other in kinds for name in settings(other)}
    for name in there:
        if name in known and name not in settings(kind) and name not in kind.refused:
            raise DataError(
                f"{option(name)} does not go with {option(kind.data)}.",
                option=name,
                remedy=f"Leave {option(name)} out.",
            )
    return kind.of(function, **there)


#: Why a map by tile has no periods.
_OF_TIME = ("time", "every", "between", "date_format", "absent", "dynamics", *_OF_REPORTS)
_ONE_TIME = "does not go with {}: they are not mapped over time"


class TilesOptions(
    WorkerOptions, ResultOptions, ComputeOptions, PriorOptions, UnitOptions, CovariateOptions, EffortOptions,
    ExposureOptions, ReadingOptions, LandOptions, CountOptions, heading="Model"):  # fmt: skip
    """What `map_tiles` takes; see there.

    Parameters
    ----------
    cell_size : float
        In metres.
    output : path
        A folder: ``mosaic.tif``, ``mosaic.zarr``, ``summary.json``, and ``tiles/``, which may be deleted in the end.
    tile_nodes : int
        Cells of land of a tile, at most; its halo comes on top.
    halo : float, optional
        Width of the halo in lengthscales, at least 3, which is the default. With an exposure or an effort it is 4:
        over land where nobody is, or nobody looks, information comes from farther away.
    thresholds : sequence of float
        In the unit of the map. Each adds a band with the probability of exceeding it, ``exceedance_2``.
    """

    refused: ClassVar[Mapping[str, str]] = (
        dict.fromkeys(
            ("bridges", "areas", "count", "suppressed", "weights", "on_water", "chunksize"), "does not go with tiles"
        )
        | dict.fromkeys(_OF_PLACES, "does not go with tiles: an area may lie in several of them")
        | dict.fromkeys(
            ("m", "boundary", "kernel", "hyper", "likelihood", "max_features", "max_seconds", "quick", "cache"),
            "does not go with tiles, which are fitted at full resolution with what all of them share",
        )
        | dict.fromkeys(_OF_TIME, _ONE_TIME.format("tiles"))
        | dict.fromkeys(
            ("min_count", "min_people", "protect"),
            "does not go with tiles: where they are blended, no fit knows on how many events a cell rests",
        )
    )  # fmt: skip
    output: Any = setting("Folder to write, or to resume.", "folder", heading="Results", default=MISSING, short="-o")
    tile_nodes: int = setting(
        "Cells of land in a tile, at most, without its halo.", "number", default=50_000, least=100
    )
    halo: float | None = setting(
        "Width of the halo around a tile, in lengthscales; by default 3, and 4 with exposure or effort.",
        "number",
        metavar="N",
        least=3.0,
    )
    thresholds: tuple[float, ...] = setting(
        "Map the probability of exceeding T; may be repeated.",
        "numbers",
        heading="Results",
        default=(),
        flag="--threshold",
        metavar="T",
        above=0.0,
    )

    def _check(self) -> None:
        from geobgp.units import check_units

        if self.cell_size is None:
            raise DataError(
                "How wide are the cells?", option="cell_size", remedy=f"Give {option('cell_size')} in metres."
            )
        for name in ("exposure", "effort"):
            by_parts(name, getattr(self, name))
        parts = {name: by_parts("covariates", value) for name, value in (self.covariates or {}).items()}
        self._set("covariates", parts or None)
        check_units(self.units, self.exposure is not None)


def by_parts(name: str, value: Any) -> Any:
    """Return a source of which every tile can read its part; refuse any other.

    Parameters
    ----------
    name : str
        The option that it is of.
    value : path, GeoDataFrame, or a curve, groups or levels of one, or an Interaction
    """
    from geobgp.data.effects import Categorical, Distance, Group, Interaction, Smooth, parsed_kind

    value = parsed_kind(value)
    if isinstance(value, Interaction):
        return value
    if isinstance(value, Distance):
        raise DataError(
            f"{option(name)}: the distance over land follows from all of the land, of which a tile knows its part.",
            option=name,
            found="Distance",
            remedy="Map all of the land at once, or give a raster of the distance.",
        )
    if isinstance(value, Categorical | Smooth | Group):
        return dataclasses.replace(value, source=by_parts(name, value.source))
    if value is None or isinstance(value, str | Path):
        return value
    if hasattr(value, "columns") and hasattr(value, "geometry"):
        return value
    if isinstance(value, list | tuple):
        from geobgp.data.sources import check_one

        check_one(name, value, "a map by tile", "Give one for all: tiles are not mapped over time.")
    if hasattr(value, "dims"):
        what, remedy = "an array in memory", 'Write it to a file: array.rio.to_raster("raster.tif").'
    elif callable(value):
        what, remedy = "a function", "Write its values to a raster."
    else:
        what = f"a {type(value).__name__}, whose numbers would belong to the nodes of one domain"
        remedy = "Give the path of a raster, or polygons."
    raise DataError(
        f"{option(name)}: every tile reads its own part of a raster file or of polygons; found {what}.",
        option=name,
        found=type(value).__name__,
        remedy=remedy,
    )


# -- What is known of options: settings, signatures, docstrings ------------------------------------------------


def settings(options: type[OptionSet] = Options) -> dict[str, Setting]:
    """Return how each option is set, by its name in Python, in the order of the headings."""
    headings = {
        name: cls._heading
        for cls in reversed(options.__mro__)
        if issubclass(cls, OptionSet)
        for name in vars(cls).get("__annotations__", {})
    }
    fields_by_name = {
        f.name: dataclasses.replace(how := f.metadata["setting"], heading=how.heading or headings[f.name])
        for f in dataclasses.fields(options)
        if f.name not in options.refused
    }
    return dict(sorted(fields_by_name.items(), key=lambda pair: HEADINGS.index(pair[1].heading or "Data")))


def documentation(options: type[OptionSet]) -> str:
    """Return what numpydoc calls the parameters of a function that takes options, from the docstrings of its groups."""
    known, parts = settings(options), dict[str, str]()
    for cls in options.__mro__:
        text = inspect.cleandoc(vars(cls).get("__doc__") or "")
        section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n|\Z)", text, re.S)
        if section is None or not issubclass(cls, OptionSet):
            continue
        for entry in re.split(r"\n(?=\S)", section[1]):
            head, _, body = entry.partition("\n")
            names, colon, kind = head.partition(" : ")
            here = [name for name in names.split(", ") if name in known]
            if here and here[0] not in parts:
                parts[here[0]] = f"{', '.join(here)}{colon}{kind}\n{body}"
    return "\n".join(parts[name] for name in known if name in parts)


def takes(options: type[OptionSet], **renamed: str) -> Callable[[F], F]:
    """Return a decorator of a function with ``**options``: it gets the signature and the docstring of all of them.

    In its docstring ``{options}`` stands where they are described. Arguments that it names itself come first, those of
    `renamed` options under another name.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        fields = {f.name: f for f in dataclasses.fields(options)}
        names = [n for n in settings(options) if n not in signature.parameters and n not in renamed]
        rest = [
            inspect.Parameter(name, own[-1].KEYWORD_ONLY, default=fields[name].default, annotation=fields[name].type)
            for name in names
        ]
        last = [p for p in own if p.name == "progress"]
        parameters = [*(p for p in own if p.name != "progress"), *rest, *last]
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        text = documentation(options)
        for name, other in renamed.items():
            text = re.sub(rf"^{name}\b", other, text, flags=re.M)
        text = text.replace("\n", "\n    ")
        function.__doc__ = (function.__doc__ or "").replace("{options}", text)
        return function

    return decorate


def _read_from(covariate: Any) -> Any:
    """Return what a covariate is read from, of whatever kind it is; None of an interaction of two others."""
    from geobgp.data.effects import Distance, Interaction, Kind

    while isinstance(covariate, Kind):
        if isinstance(covariate, Interaction):
            return None
        covariate = covariate.places if isinstance(covariate, Distance) else covariate.source
    return None if isinstance(covariate, str) and covariate.endswith("|interaction") else covariate


def _by_number(what: str, value: Any) -> dict[str, Any]:
    """Return an input, or those of several periods with their numbers, by what they are for."""
    if isinstance(value, (list, tuple)) and not all(isinstance(one, (int, float)) for one in value):
        return {f"{what} {k}": one for k, one in enumerate(value, 1)}
    return {what: value}


def _by_level(what: str, value: Any) -> dict[str, Any]:
    """Return areas, or those of several levels with their names, by what they are for; cells to be drawn are none."""
    each = {f"{what} {level}": one for level, one in value.items()} if isinstance(value, Mapping) else {what: value}
    return {name: one for name, one in each.items() if not (isinstance(one, str) and one.lower() == VORONOI)}


def _paths(what: str, value: Any) -> dict[str, str]:
    """Return the path of a file, or those of several, by what they are for."""
    if isinstance(value, (str, Path)):
        return {what: str(value)}
    several = value if isinstance(value, (list, tuple)) else ()
    return {f"{what} {k}": str(one) for k, one in enumerate(several, 1) if isinstance(one, (str, Path))}


def _plain(value: Any, kind: Kind) -> Any:
    if kind in ("file", "files", "folder", "rasters", "places"):
        if isinstance(value, (str, Path)):
            return Path(value).name
        if isinstance(value, (list, tuple)) and any(isinstance(v, (str, Path)) for v in value):
            return [_plain(v, kind) for v in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(v, kind) for name, v in value.items()}
    if kind == "rasters" and dataclasses.is_dataclass(value) and not isinstance(value, type):  # as it would be called
        fields = dataclasses.fields(value)
        given = {one.name: getattr(value, one.name) for one in fields if one.default is not getattr(value, one.name)}
        words = [f"{name}={_plain(one, kind)!r}" for name, one in given.items()]
        return f"{type(value).__name__}({', '.join(words)})"
    if kind in ("periods", "column or values") and not isinstance(value, str):
        several = isinstance(value, (list, tuple)) and kind == "periods"
        return [str(v) for v in value] if several else f"a {type(value).__name__}"
    if isinstance(value, (list, tuple)):
        return [v if isinstance(v, (str, int, float)) else str(v) for v in value]
    return value if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, int, float)) and value == default)
