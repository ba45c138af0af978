"""Units: in what an intensity is shown, the factor from its own unit to that, and the words."""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import number

#: Exposures that are numbers of events, by kind: the map is a relative risk, in this unit.
RISKS: Final = {"expected": "times the expected", "risk": "times the average risk"}
#: What maps of ratios to an average are called.
RELATIVE_RISK: Final = "relative risk"
#: Square metres of the areas that events can be counted per.
_AREAS: Final = {
    "km²": 1e6, "km2": 1e6, "km^2": 1e6, "square kilometre": 1e6, "square kilometer": 1e6, "ha": 1e4,
    "hectare": 1e4, "m²": 1.0, "m2": 1.0, "m^2": 1.0, "square metre": 1.0, "square meter": 1.0,
    "mi²": 2_589_988.110336, "mi2": 2_589_988.110336, "square mile": 2_589_988.110336, "acre": 4_046.8564224,
}  # fmt: skip
_SHORT: Final = {"km2": "km²", "km^2": "km²", "m2": "m²", "m^2": "m²", "mi2": "mi²"}
_WORDS: Final = {
    "hundred": 100.0, "k": 1e3, "thousand": 1e3, "lakh": 1e5, "m": 1e6, "mln": 1e6, "million": 1e6, "bn": 1e9,
    "billion": 1e9,
}  # fmt: skip
_TIMES: Final = ("day", "week", "month", "quarter", "year")
_SUPERSCRIPTS: Final = "\u2070\u00b9\u00b2\u00b3\u2074-\u2079"
#: A number with what may stand between its digits; to a power, or times one of ten; words such as "thousand"; a noun.
_SIZE: Final = re.compile(
    r"(\d(?:[\d.,_'\u2019 ]*\d)?)?"
    r"(?: ?(?:\^|\*\*) ?(\d+)|[eE]\+?(\d+)| ?[x\u00d7*] ?10 ?(?:\^|\*\*) ?(\d+))?"
    r"((?: ?(?:(?:(?<=\d)|(?<=\d ))(?:[kK]|M)|(?i:hundred|thousand|lakh|mln|million|bn|billion))(?![\w²^]))*)"
    r" ?(.*)"
)
#: The most that events are counted per: more than there are people, or square metres in a country.
_LARGEST: Final = 1e15
#: What is mapped where nothing is counted per exposure: its unit, where none was given.
_PLAIN: Final = {"prevalence": "share", "probability": "probability", "value": "unit of the values"}
#: What events are counted per, as UDUNITS has it; people and other things that are counted have no unit there.
_UDUNITS: Final = {
    "km²": "km-2", "m²": "m-2", "ha": "hectare-1", "hectare": "hectare-1", "day": "day-1", "week": "week-1",
    "month": "month-1", "quarter": "(3 month)-1", "year": "year-1",
}  # fmt: skip
_ONES: Final = {"population": ("person", "people"), "exposure": ("unit of exposure", "units of exposure")}
#: A threshold is far from the map where the probability of exceeding it is this near to 0, or to 1, everywhere.
FAR: Final = 0.001
_EXAMPLES: Final = "'per 100,000', 'per 1,000 people', 'per million', 'per km²', 'per ha' or 'relative risk'"


@dataclass(frozen=True)
class Units:
    """In what an intensity is shown.

    Attributes
    ----------
    factor : float
        What an intensity in its own unit (events per km², per person) is multiplied by.
    words : str
        As in "events per 100,000 people"; they stand after a number.
    quantity : "intensity", "relative risk", "prevalence", "probability" or "value"
        What is shown; a relative risk has classes about 1.
    size : float
        How many of the first of `each` events are counted per.
    each : tuple of str
        What events are counted per: ("km²", "month").

    Examples
    --------
    >>> units = Units.of("per 100,000", "population")
    >>> units.words, units.factor, units.per("month").words
    ('events per 100,000 people', 100000.0, 'events per 100,000 people per month')
    >>> Units.of("per ha", "area", (1e6, "km²")).factor
    0.01
    """

    factor: float
    words: str
    quantity: str = "intensity"
    size: float = 1.0
    each: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, asked: str, kind: str, area: tuple[float, str] = (1e6, "km²"), overall: Callable[[], float] | None = None
    ) -> Units:
        """Return the units that were asked for, or say why these do not fit what events are counted per.

        Parameters
        ----------
        asked : str
            "per 100,000", "per 1,000 women", "per ha", "relative risk"; empty for the own unit.
        kind : str
            What the exposure is: "area", "population", "expected", "risk", "exposure" or "observation"; or the
            quantity, where that is a "prevalence", a "probability" or a "value".
        area : (float, str)
            The area that events are counted per by themselves, in m², and its name.
        overall : callable, optional
            Gives the average intensity in its own unit, which a relative risk is the ratio to; left out before the fit.
        """
        if kind in _PLAIN:
            if asked and kind != "value":
                raise _unfit(asked, f"this map is of a {kind}, from 0 to 1, which has no other unit", "Leave it out.")
            return cls(1.0, asked or _PLAIN[kind], kind)
        if kind in RISKS:
            if asked and asked.strip().lower() != RELATIVE_RISK:
                raise _unfit(asked, "this map is a relative risk, which has no other unit", "Leave it out.")
            return cls(1.0, RISKS[kind], RELATIVE_RISK)
        if not asked:
            one = {"area": area[1], "observation": "observation"} | {k: v[0] for k, v in _ONES.items()}
            return cls(1.0, f"events per {one.get(kind, kind)}", each=(one.get(kind, kind),))
        if asked.strip().lower() == RELATIVE_RISK:
            if kind not in _ONES:
                raise _unfit(
                    asked,
                    f"a relative risk is one of people, and events are counted per {area[1]} here",
                    f"Give the population (or expected cases) as {option('exposure')}.",
                )
            return cls(1.0 / overall() if overall is not None else 1.0, "times the average risk", RELATIVE_RISK)
        size, noun = _parse(asked)
        return cls._per_area(asked, size, noun, kind, area) if noun in _AREAS else cls._each(asked, size, noun, kind)

    @classmethod
    def _per_area(cls, asked: str, size: float, noun: str, kind: str, area: tuple[float, str]) -> Units:
        if kind != "area":
            raise _unfit(
                asked,
                f"events are counted per {_ONES.get(kind, (kind,))[0]} here, not by area",
                f"Say 'per 100,000', or leave {option('exposure')} out.",
            )
        if area[0] != 1e6:
            raise _unfit(asked, "land in local coordinates has no square kilometres", "Leave it out.")
        several = size != 1
        name = _SHORT.get(noun, noun) + ("s" if several and noun.endswith(("e", "er")) else "")
        many = f"{_amount(size)} " if several else ""
        return cls(size * _AREAS[noun] / area[0], f"events per {many}{name}", size=size, each=(_SHORT.get(noun, noun),))

    @classmethod
    def _each(cls, asked: str, size: float, noun: str, kind: str) -> Units:
        if kind not in _ONES:
            raise _unfit(
                asked,
                "no population was given, so that events are counted by area",
                f"Give it as {option('exposure')}, or say 'per km²' or 'per ha'.",
            )
        things = noun or _ONES[kind][size != 1]
        words = f"events per {_amount(size)} {things}" if size != 1 else f"events per {things}"
        return cls(size, words, size=size, each=(things,))

    @property
    def title(self) -> str:
        """What a map in these units is called."""
        plain = self.quantity != "intensity" and (self.quantity != "value" or self.words == _PLAIN["value"])
        return self.quantity.capitalize() if plain else f"{self.quantity.capitalize()} in {self.words}"

    @property
    def udunits(self) -> str:
        """The units as UDUNITS has them; those of values as they were given.

        Examples
        --------
        >>> Units.of("per 100,000", "population").per("quarter").udunits, Units.of("per 10 acres", "area").udunits
        ('1e-05 (3 month)-1', '2.471053815e-05 m-2')
        >>> Units.of("", "area").per("month").udunits, Units.of("", "risk").udunits
        ('km-2 month-1', '1')
        """
        if self.quantity == "value":
            return self.words
        factor, parts = 1.0 / self.size, []
        for noun in self.each:
            if noun in _AREAS and noun not in _UDUNITS:
                factor, noun = factor / _AREAS[noun], "m²"
            parts += [_UDUNITS[noun]] if noun in _UDUNITS else []
        scale = [f"{factor:.10g}"] if factor != 1.0 or not parts else []
        return " ".join(scale + parts)

    def per(self, period: str) -> Units:
        """Return units of events per period as well; a relative risk stays one.

        Parameters
        ----------
        period : str
            "month", "year": that of the fit, whose rates these units are then of.
        """
        if self.quantity != "intensity":
            return self
        return dataclasses.replace(self, words=f"{self.words} per {period}", each=(*self.each, period))


def check_units(asked: str | None, exposed: bool) -> None:
    """Refuse words that are no unit, and those that cannot fit, before anything is read.

    Parameters
    ----------
    asked : str, optional
    exposed : bool
        Whether an exposure was given.

    Examples
    --------
    >>> check_units("per 1,000", exposed=True)
    >>> check_units("per furlong", exposed=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: units='per furlong' does not fit: it is neither a number nor an area. ...
    """
    if not asked or asked.strip().lower() == RELATIVE_RISK:
        if asked and not exposed:
            Units.of(asked, "area")
        return
    _, noun = _parse(asked)
    if not exposed:
        Units.of(asked, "area")
    elif noun in _AREAS:
        Units.of(asked, "population")


def exceeds(quantity: str, threshold: float, units: str) -> str:
    """Return the event that a threshold is exceeded; ratios, shares and probabilities have no unit after the number.

    Examples
    --------
    >>> exceeds("intensity", 0.2, "events per km²"), exceeds("relative risk", 1.0, "times the average risk")
    ('the intensity exceeds 0.2 events per km²', 'the relative risk exceeds 1')
    """
    return f"the {quantity} exceeds {number(threshold, 3)}{'' if quantity == RELATIVE_RISK else after(units)}"


def check_threshold(threshold: float, quantity: str, name: str = "threshold") -> None:
    """Refuse what can be no threshold of a share: prevalences and probabilities lie between 0 and 1.

    Examples
    --------
    >>> check_threshold(0.4, "prevalence"), check_threshold(40.0, "intensity")
    (None, None)
    >>> check_threshold(40.0, "prevalence")
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: Thresholds of a prevalence are shares between 0 and 1; found 40. Did you mean 0.4?
    """
    if quantity in ("prevalence", "probability") and not 0.0 < threshold < 1.0:
        kind = "shares" if quantity == "prevalence" else "numbers"
        raise DataError(
            f"Thresholds of a {quantity} are {kind} between 0 and 1; found {threshold:g}.",
            option=name,
            found=threshold,
            remedy=f"Did you mean {threshold / 100:g}?" if 1.0 < threshold < 100.0 else "Give one such as 0.2.",
        )


def after(units: str) -> str:
    """Return units as they stand after a number; nothing for those that only say what the number is.

    Examples
    --------
    >>> after("events per km²"), after("share")
    (' events per km²', '')
    """
    return f" {units}" if units and units not in _PLAIN.values() else ""


def warn_if_far(
    threshold: float, units: str, chances: tuple[float, float], values: tuple[float, float], interval: str
) -> str:
    """Return what to say of a threshold that no place comes near, and warn of it; empty for the others.

    Parameters
    ----------
    threshold : float
    units : str
    chances : (float, float)
        The lowest and the highest probability of exceeding it on the map.
    values : (float, float)
        Between which the map lies: the lowest and the highest end of its intervals.
    interval : str
        How probable they are, in words.
    """
    if chances[1] > FAR and chances[0] < 1 - FAR:
        return ""
    below = chances[1] <= FAR
    words = number(threshold, 3)
    odds = f"over {100 * FAR:g} %" if below else f"over {100 * (1 - FAR):g} %"
    note = f"{'No' if below else 'Every'} place exceeds {words} with a probability of {odds}."
    warn(
        InputWarning(
            f"The threshold of {words} {units} says little: {note[0].lower()}{note[1:]} The {interval} "
            f"intervals of the map lie between {number(values[0], 3)} and {number(values[1], 3)}.",
            option="thresholds",
            found=threshold,
            remedy=f"Take a {'lower' if below else 'higher'} one, among these.",
        )
    )
    return note


def _parse(asked: str) -> tuple[float, str]:
    """Return how many of what events are counted per; the noun is empty where it was not said.

    Examples
    --------
    >>> [_parse(words)[0] for words in ("per 100,000", "per 100\u202f000", "per 100'000", "per 10^5", "per 100k")]
    [100000.0, 100000.0, 100000.0, 100000.0, 100000.0]
    """
    text = re.sub(f"(?<=10)[{_SUPERSCRIPTS}]+", _raised, " ".join(asked.split()))
    begin = re.match(r"(?:events )?per (?=\S)", text, re.IGNORECASE)
    if begin is None:
        raise _unfit(asked, "it should begin with 'per'")
    found = _SIZE.match(text, begin.end())
    assert found is not None
    digits, power, e, ten, words, noun = found.groups()
    exponent = int(power or e or ten or 0)
    base = 1.0 if digits is None else _number(asked, digits)
    size = math.inf
    with suppress(OverflowError):
        size = base**exponent if power else base * 10.0**exponent
    size *= math.prod(_WORDS[word.lower()] for word in words.split())
    single = noun.lower().removesuffix("s")
    noun = single if single in _AREAS else noun
    if not 0 < size <= _LARGEST:
        most = f"the number may be {number(_LARGEST, 12)} at the most"
        raise _unfit(asked, most if size > 0 else "it is neither a number above 0 nor an area")
    known = noun in _AREAS or noun in ("person", "unit of exposure")
    if not known and (size == 1 or not re.fullmatch(r"|[^\W\d_]{2}.*", noun)):
        raise _unfit(asked, "it is neither a number nor an area" if size == 1 else f"{noun!r} is nothing to count")
    if single in _TIMES:
        raise _unfit(asked, f"{noun!r} is a time, and events of a period are counted per people or area")
    return size, "" if noun in ("person", "unit of exposure") else noun


def _raised(found: re.Match[str]) -> str:
    return "^" + "".join(str(unicodedata.digit(c)) for c in found[0])


def _number(asked: str, text: str) -> float:
    """Return a number as people write it, with marks between thousands; one that can be read in two ways is refused."""
    groups = r"\d+|\d{1,3}([,_'\u2019 ])\d{3}(?:\1\d{3})*|\d{1,2}(?:,\d{2})+,\d{3}"
    if re.fullmatch(groups, text) or re.fullmatch(r"\d{1,3}(?:\.000)+", text):  # nobody counts per 100.000 = 100
        return float(re.sub(r"\D", "", text))
    if re.fullmatch(r"\d{1,3}\.\d{3}", text):
        ways = f"{number(float(text), 12)} or {number(float(text.replace('.', '')), 12)}"
        raise _unfit(asked, f"{text!r} can be read as {ways}", "Write thousands with a comma: 'per 100,000'.")
    if re.fullmatch(r"\d+\.\d+|\d{1,3}(?:,\d{3})+\.\d+", text):
        return float(text.replace(",", ""))
    raise _unfit(asked, f"{text!r} cannot be read as a number")


def _amount(size: float) -> str:
    return "million" if size == 1e6 else number(size, 12)


def _unfit(asked: str, why: str, remedy: str = "") -> DataError:
    return DataError(
        f"{option('units', asked)} does not fit: {why}.",
        option="units",
        found=asked,
        remedy=remedy or f"Say {_EXAMPLES}.",
    )
