"""The options of a run, with their defaults, help and rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from geobgp import validation as arguments
from geobgp import validation as validate
from geobgp.errors import DataError, GeometryError, option
from geobgp.units import check_units

if TYPE_CHECKING:
    import numpy as np

    from geobgp.data.effects import Covariates
    from geobgp.data.inputs import Effort, Exposure
    from geobgp.prior.kernels import Kernel


# -- What the value of an option must be, by what its `Setting` says of it -----------------------------------


def rule_of(name: str, how: Setting, default: Any) -> validate.Rule | None:
    """Return what the value of an option must be; None where anything may be."""
    if how.choices:
        return validate.choice(*how.choices)
    if how.kind in ("number", "numbers"):
        whole = isinstance(default, int)
        one = (
            validate.whole(int(how.least)) if whole else validate.real(how.above, how.least, below=how.below)
        )
        return one if how.kind == "number" else validate.numbers(one, f"a list, each {one.words}")
    if how.kind == "crs":
        from geobgp.land.crs import as_crs

        def known(value: Any) -> Any:
            if not (name == "crs" and isinstance(value, str) and value.lower() == "local"):
                as_crs(value, name)
            return value

        return validate.Rule("a CRS", known)
    if name == "weights":
        return arguments.WEIGHTS
    return _RULES.get(how.kind)


_RULES: dict[str, validate.Rule] = {
    "file": arguments.SOURCE,
    "files": arguments.SOURCE,
    "folder": validate.PATH,
    "text": validate.TEXT,
    "column": validate.NAME,
    "columns": validate.names("a list of names of columns"),
    "features": validate.either(
        validate.choice("auto", "full"),
        validate.whole(1),
        words="'auto', 'full' or a number of features of at least 1",
    ),
    "interval": arguments.SUPPRESSED,
    "share": validate.either(
        validate.choice("auto"),
        validate.real(least=0.0, most=1.0),
        words="'auto' or a number from 0 to 1",
    ),
    "rasters": arguments.COVARIATES,
    "kernel": arguments.KERNEL,
    "client": arguments.CLIENT,
    "dates": arguments.TIMES,
    "periods": arguments.EVERY,
    "span": arguments.SPAN,
    "small numbers": arguments.MIN_COUNT,
}


# -- Options: all that a run of `map_intensity` can be told, written once for Python, the shell and the record --
# A new option is one field here, and a line in the signature and docstring of `map_intensity` (a test compares
# them). From the field's `Setting` come the option of ``geobgp map`` and its help, what is checked before any
# work begins, the command line in the report, the entry in ``summary.json``, and the name by which errors speak
# of it.


#: Headings under which the shell lists options.
Group = Literal["Data", "Time", "Land", "Points", "Rates and covariates", "Model", "Results"]
#: What a value is, in the words of files and the shell.
Kind = Literal[
    "file",
    "files",
    "folder",
    "text",
    "column",
    "columns",
    "crs",
    "number",
    "numbers",
    "features",
    "interval",
    "share",
    "choice",
    "flag",
    "rasters",
    "kernel",
    "client",
    "dates",
    "periods",
    "span",
    "small numbers",
]
Features = int | Literal["auto", "full"]


@dataclass(frozen=True)
class Setting:
    """What there is to know of an option besides its name and default.

    Attributes
    ----------
    help : str
        One line for the shell; empty for what only Python can say.
    group : str
    kind : str
    flag, short : str
        Its name in the shell, by default that of Python with dashes; and one of a letter.
    formerly : str
        Another name in the shell, from before; it works, is not listed, and says what it is called now.
    metavar : str
    choices : tuple of str
        What it can be; the default besides.
    sets : object
        What a flag stands for.
    above, least, below : float
        Numbers must be above, at least, or below this.
    matters : bool
        Whether the results depend on it.
    always : bool
        Whether it is told in any case, so that it is not listed among what was given.
    """

    help: str = ""
    group: Group = "Data"
    kind: Kind = "text"
    flag: str = ""
    short: str = ""
    formerly: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    sets: Any = True
    above: float = -math.inf
    least: float = -math.inf
    below: float = math.inf
    matters: bool = True
    always: bool = False


def setting(
    help: str = "", group: Group = "Data", kind: Kind = "text", *, default: Any = None, **more: Any
) -> Any:
    """Return a dataclass field of an option."""
    return field(default=default, metadata={"setting": Setting(help, group, kind, **more)})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OptionSet:
    """Options of a command, each a field with a `Setting`; wrong values are refused when it is made."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            rule = None if value is f.default else rule_of(f.name, f.metadata["setting"], f.default)
            if rule is not None:
                object.__setattr__(self, f.name, rule(f.name, value))

    def given(self) -> dict[str, Any]:
        """Return the options that are not as they are by default, by name; none that must be given."""
        told = (f for f in dataclasses.fields(self) if f.default is not MISSING)
        named = (f for f in told if not f.metadata["setting"].always)
        return {f.name: value for f in named if not _same(value := getattr(self, f.name), f.default)}

    def files(self) -> dict[str, str]:
        """Return the files that are to be read, by what they are for."""
        found: dict[str, str] = {}
        for name, how in settings(type(self)).items():
            value = getattr(self, name)
            if how.kind in ("file", "files"):
                found |= _paths(name, value)
            elif how.kind == "rasters":
                for key, given in (value or {}).items():
                    found |= _paths(f"covariate {key}", given)
        return found

    def check_files(self) -> None:
        """Refuse to begin when a file is missing."""
        from geobgp.files import check_exists

        for what, path in self.files().items():
            check_exists(path, what)

    def record(self) -> dict[str, Any]:
        """Return what was given as plain data; of files their names without folders, as results travel."""
        how = settings(type(self))
        return {name: _plain(value, how[name].kind) for name, value in self.given().items()}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Options(OptionSet):
    """What a run of `map_intensity` is told; see there. Wrong values are refused when it is made.

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

    points: Any = setting("The points.", kind="file", always=True)
    land: Any = setting("Polygons of the land.", kind="file", always=True)
    areas: Any = setting("Polygons with a number of events each, in place of points or besides.", kind="file")
    count: str | None = setting("The column of the areas with the number of events.", kind="column")
    suppressed: tuple[int, int] | None = setting(
        "What areas without a number are known to lie between, such as 1-4.",
        kind="interval",
        metavar="LOW-HIGH",
    )
    time: str | np.ndarray | None = setting(
        "The column of dates of the points (or areas): a map for each period.",
        "Time",
        "dates",
        metavar="COLUMN",
    )
    every: Any = setting(
        "How long a period is: day, week, epiweek (from Sunday, MMWR), month, quarter, year, or edges such as "
        "2020-01-01,2020-07-01,2021-01-01.",
        "Time",
        "periods",
        metavar="PERIOD",
    )
    between: Any = setting(
        "First and last period, such as 2015-01/2020-12; by default those of the events.",
        "Time",
        "span",
        metavar="FIRST/LAST",
    )
    date_format: str | None = setting(
        "How dates are written that are not year first, such as %d/%m/%Y.", "Time", metavar="FORMAT"
    )
    absent: Literal["zero", "unknown"] | None = setting(
        "What it means that an area has no row in a period.", "Time", "choice", choices=("zero", "unknown")
    )
    dynamics: Literal["auto", "separable", "diffusive"] = setting(
        "Whether patches of all sizes fade alike, or small ones sooner; by default the data tell.",
        "Time",
        "choice",
        default="auto",
        choices=("auto", "separable", "diffusive"),
    )
    water: Any = setting("Polygons to take out of the land.", kind="file")
    barriers: Any = setting("Lines that nothing passes.", kind="file")
    bridges: Any = setting("Lines that join what water parts.", kind="file")
    exposure: Exposure | None = setting(
        "People per pixel (raster) or per area (polygons): the map is a rate; repeated, one for each period.",
        "Rates and covariates",
        "files",
    )
    exposure_column: str | None = setting(
        "The column of polygons with the exposure.", "Rates and covariates", "column"
    )
    effort: Effort | None = setting(
        "The share of events that get reported, 0 to 1 (raster or polygons): the map is of all events.",
        "Rates and covariates",
        "file",
    )
    effort_column: str | None = setting(
        "The column of polygons with the effort.", "Rates and covariates", "column"
    )
    covariates: Covariates | None = setting(
        "A raster that may explain the intensity; may be repeated, over time with one name for each period. Codes: "
        "'NAME=RASTER|levels'.",
        "Rates and covariates",
        "rasters",
        flag="--covariate",
    )
    fill_missing: Literal["mean"] | None = setting(
        "Give places without a covariate the mean of the others.",
        "Rates and covariates",
        "flag",
        choices=("mean",),
        sets="mean",
    )
    cell_size: float | None = setting(
        "Side of a cell in metres; by default chosen.", "Land", "number", metavar="M", above=0.0
    )
    crs: Any = setting("Projected CRS of the map, or 'local'; by default chosen.", "Land", "crs")
    land_crs: Any = setting("CRS of land, water, barriers if their files do not say.", "Land", "crs")
    min_coverage: float = setting(default=0.02, group="Land", kind="number", least=0.0, below=1.0)
    weights: str | np.ndarray | None = setting(
        "A column to add up in place of counting points.", "Points", "column"
    )
    longitude: str | None = setting("Column of a table with the longitude.", "Points", "column")
    latitude: str | None = setting("Column of a table with the latitude.", "Points", "column")
    easting: str | None = setting("Column of a table with the easting.", "Points", "column")
    northing: str | None = setting("Column of a table with the northing.", "Points", "column")
    points_crs: Any = setting("CRS of the points where their file does not say.", "Points", "crs")
    layer: str | None = setting(
        "Layer of the points, in a file with several. (Other files: FILE|layername=NAME.)",
        "Points",
        metavar="NAME",
    )
    on_water: Literal["nearest", "drop", "error"] = setting(
        "What to do with points off the land.",
        "Points",
        "choice",
        default="nearest",
        choices=("nearest", "drop", "error"),
    )
    max_snap: float | None = setting(
        "How far points off the land are moved, in metres; two cells if not given.",
        "Points",
        "number",
        metavar="M",
        least=0.0,
    )
    chunksize: int = setting(default=200_000, group="Points", kind="number", least=1)
    m: Features = setting(
        "How finely the map can vary.", "Model", "features", default="auto", flag="--features"
    )
    boundary: Literal["neumann", "dirichlet"] = setting(
        "At the shore the map levels off freely, or is held at its mean.",
        "Model",
        "choice",
        default="neumann",
        choices=("neumann", "dirichlet"),
    )
    permeability: float | Literal["auto"] = setting(
        "How far information crosses water, from 0 (not at all) to 1 (as over land); by default the data tell.",
        "Model",
        "share",
        default="auto",
    )
    likelihood: Literal["poisson", "negative-binomial"] = setting(
        "How counts vary about their mean: as independent events do, or more.",
        "Model",
        "choice",
        default="poisson",
        choices=("poisson", "negative-binomial"),
    )
    kernel: Kernel | None = setting(group="Model", kind="kernel")
    hyper: Literal["map", "integrate"] = setting(
        "Take the best hyperparameters, or average over them.",
        "Model",
        "choice",
        default="map",
        choices=("map", "integrate"),
    )
    max_seconds: float = setting(
        "Begin no finer or larger model that would end after this time.",
        "Model",
        "number",
        default=60.0,
        metavar="S",
        least=0.0,
    )
    max_features: int = setting(default=1024, group="Model", kind="number", least=1)
    cache: bool = setting(
        "Neither read nor keep computed features.",
        "Model",
        "flag",
        default=True,
        flag="--no-cache",
        choices=(True, False),
        sets=False,
        matters=False,
    )
    client: Any = setting(
        "Address of a Dask scheduler whose workers count points in many parts and share mixtures.",
        "Model",
        "client",
        flag="--scheduler",
        metavar="ADDRESS",
        matters=False,
    )
    units: str | None = setting(
        "What events are shown per: 'per 100,000', 'per ha', or 'relative risk'.", "Results", metavar="TEXT"
    )
    title: str = setting("Title of map and report.", "Results", default="", metavar="TEXT")
    interval: float = setting(
        "Probability of all intervals, such as 0.95.",
        "Results",
        "number",
        default=0.9,
        metavar="P",
        least=0.5,
        below=1.0,
    )
    min_count: int | str = setting(
        "Hide cells and regions that rest on fewer events than this; or the rule of an office: cdc, nhs, ons.",
        "Results",
        "small numbers",
        default=0,
        metavar="K",
    )
    protect: Literal["hide", "smooth"] = setting(
        "Hide small numbers; or show a map so smooth that nearly none is left.",
        "Results",
        "choice",
        default="hide",
        choices=("hide", "smooth"),
    )
    min_people: float = setting(
        "Hide cells and regions with fewer people than this.",
        "Results",
        "number",
        default=0.0,
        metavar="K",
        least=0.0,
    )

    def __post_init__(self) -> None:
        if str(self.boundary) == "auto":
            raise DataError(
                "boundary='auto' is no longer there: a Dirichlet condition pins the shore to the mean, with intervals "
                "that are too narrow, and is only for those who ask for it. Whether water parts the events is told by "
                "the data.",
                option="boundary",
                found="auto",
                remedy=f"Leave it out, and see {option('permeability')}.",
            )
        super().__post_init__()
        if hasattr(self.covariates, "columns"):  # a table: its columns by name
            from geobgp.data.effects import named_covariates

            object.__setattr__(self, "covariates", named_covariates(self.covariates))
        self._check_data()
        self._check_privacy()
        self._check_time()
        check_units(self.units, self.exposure is not None)
        if self.boundary == "dirichlet" and self.permeability not in ("auto", 0):
            raise DataError(
                f"Permeable water needs a Neumann condition; found boundary='dirichlet' and a permeability of "
                f"{self.permeability:g}.",
                option="permeability",
                found=self.permeability,
                remedy=f"Leave {option('boundary')} out, or {option('permeability')}.",
            )
        for pair in (("longitude", "latitude"), ("easting", "northing")):
            if len({getattr(self, name) is None for name in pair}) == 2:
                both = " and ".join(option(name, python=f"{name}=") for name in pair)
                raise GeometryError(f"points: name both columns, {both}, or neither.", option=pair[0])
        if self.m == "full" and self.kernel is not None and not self.kernel.sparse:
            raise DataError(
                f"Full resolution needs Matern(1.0) or Matern(2.0); found {self.kernel.name}.",
                option="kernel",
                found=self.kernel,
                remedy="Use one of these, or features.",
            )

    def _check_privacy(self) -> None:
        """Refuse to hide small numbers where they would be shown all the same."""
        if self.min_people and self.exposure is None:
            raise DataError(
                f"{option('min_people')} hides where few people live.",
                option="min_people",
                found=self.min_people,
                remedy=f"Say where people live: {option('exposure')}.",
            )
        if (self.min_count or self.min_people) and getattr(self, "show_points", False):
            raise DataError(
                f"{option('show_points')} shows every point, and {option('min_count')} hides where few are.",
                option="min_count",
                found=self.min_count,
                remedy="Leave out one of them.",
            )

    def _check_data(self) -> None:
        """Refuse to begin without land, without events, or with half of what areas need."""
        if self.land is None:
            raise DataError(
                "There is no land to map.", option="land", remedy=f"Give its polygons: {option('land')}."
            )
        if self.areas is None:
            if self.points is None:
                both = f"{option('areas')} with {option('count')}"
                raise DataError(
                    "There is nothing to map.", option="points", remedy=f"Give points, or {both}."
                )
            for name in ("count", "suppressed"):
                if getattr(self, name) is not None:
                    raise DataError(
                        f"{option(name)} belongs to counts by area.",
                        option=name,
                        remedy=f"Give their polygons: {option('areas')}.",
                    )
        elif self.count is None:
            raise DataError(
                "Which column of the areas holds the number of events?",
                option="count",
                remedy=f"Name it with {option('count')}.",
            )
        elif self.m == "full":
            raise DataError(
                "Counts by area need features: every area sees all of its nodes.",
                option="m",
                found="full",
                remedy=f"Leave {option('m')} out, or give a number.",
            )

    def _check_time(self) -> None:
        """Refuse what cannot be said of time, before anything is read."""
        from geobgp.data.periods import Clock

        Clock.asked(self.time, self.every, self.between, self.date_format)
        if self.time is None:
            for name, usual in (("absent", None), ("dynamics", "auto")):
                if getattr(self, name) != usual:
                    raise DataError(
                        f"{option(name)} belongs to events with dates.",
                        option=name,
                        remedy=f"Name the column of dates: {option('time')}.",
                    )
        elif self.m == "full":
            raise DataError(
                "A map over time needs features: every period has a weight for each of them.",
                option="m",
                found="full",
                remedy=f"Leave {option('m')} out, or give a number.",
            )


def settings(options: type[OptionSet] = Options) -> dict[str, Setting]:
    """Return how each option is set, by its name in Python."""
    return {f.name: f.metadata["setting"] for f in dataclasses.fields(options)}


def _paths(what: str, value: Any) -> dict[str, str]:
    """Return the path of a file, or those of several, by what they are for."""
    if isinstance(value, (str, Path)):
        return {what: str(value)}
    several = value if isinstance(value, (list, tuple)) else ()
    return {f"{what} {k}": str(one) for k, one in enumerate(several, 1) if isinstance(one, (str, Path))}


def _plain(value: Any, kind: Kind) -> Any:
    if kind in ("file", "files", "folder", "rasters"):
        if isinstance(value, (str, Path)):
            return Path(value).name
        if isinstance(value, (list, tuple)) and any(isinstance(v, (str, Path)) for v in value):
            return [_plain(v, kind) for v in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(v, kind) for name, v in value.items()}
    if kind in ("periods", "dates") and not isinstance(value, str):
        several = isinstance(value, (list, tuple)) and kind == "periods"
        return [str(v) for v in value] if several else f"a {type(value).__name__}"
    if isinstance(value, (list, tuple)):
        return [v if isinstance(v, (str, int, float)) else str(v) for v in value]
    return value if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, int, float)) and value == default)


# -- Options of `map_risk`: those of `map_intensity` that it shares, and its own -----------------------------


def _like(name: str) -> Any:
    """Return the field of an option that `map_intensity` has too."""
    own = Options.__dataclass_fields__[name]
    return field(default=own.default, metadata=own.metadata)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RiskOptions(OptionSet):
    """What a run of `map_risk` is told; see there."""

    cases: Any = setting("The persons who fell ill.", kind="file", default=MISSING)
    controls: Any = setting("Some who did not.", kind="file", default=MISSING)
    land: Any = setting("Polygons of the land.", kind="file", default=MISSING)
    confounders: Sequence[str] = setting(
        "A column of both tables to allow for, a number or levels; may be repeated.",
        "Rates and covariates",
        "columns",
        default=(),
        flag="--confounder",
        metavar="COLUMN",
    )
    water: Any = _like("water")
    barriers: Any = _like("barriers")
    bridges: Any = _like("bridges")
    cell_size: float | None = _like("cell_size")
    crs: Any = _like("crs")
    land_crs: Any = _like("land_crs")
    min_coverage: float = _like("min_coverage")
    longitude: str | None = _like("longitude")
    latitude: str | None = _like("latitude")
    easting: str | None = _like("easting")
    northing: str | None = _like("northing")
    points_crs: Any = _like("points_crs")
    on_water: Literal["nearest", "drop", "error"] = _like("on_water")
    max_snap: float | None = _like("max_snap")
    permeability: float | Literal["auto"] = _like("permeability")
    kernel: Kernel | None = _like("kernel")
    hyper: Literal["map", "integrate"] = _like("hyper")
    max_seconds: float = _like("max_seconds")
    title: str = _like("title")
    interval: float = _like("interval")
    min_count: int | str = _like("min_count")
    protect: Literal["hide", "smooth"] = _like("protect")

    def __post_init__(self) -> None:
        if isinstance(self.confounders, str):
            object.__setattr__(self, "confounders", (self.confounders,))
        super().__post_init__()
