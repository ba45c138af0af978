"""Errors and warnings: facts, the words of each interface, and the line that a warning points to."""

import pickle
import warnings

import numpy as np
import pytest
import shapely

import geobgp
from geobgp import bin_points, errors
from geobgp.errors import (
    CheckWarning,
    DataError,
    DroppedPointsWarning,
    GeobgpError,
    GeobgpWarning,
    captured_warnings,
    option,
    render_text,
    warn,
)

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GeobgpError | GeobgpWarning)
]


def test_what_names_of_the_data_hold_never_hinders_a_message():
    """Marks of options, escapes of terminals and halves of surrogate pairs may all be in a name."""
    for name in ("a\x02b\x03c", "\x02[1]\x03", "\x1b[31mred", "zero\0", "\ud800"):
        text = str(DataError(f"There is no region {name}.", remedy=f"Give {option('regions')}."))
        assert text.isprintable() and text.endswith("Give regions.") and text.encode()
    assert "\\x1b[31mred" in str(DataError("\x1b[31mred"))


@pytest.mark.parametrize("kind", KINDS)
def test_each_carries_its_facts_and_reads_as_one_text(kind):
    told = kind("Three are negative.", option="weights", found=3, remedy="Leave them out.")
    assert (told.option, told.found, told.remedy) == ("weights", 3, "Leave them out.")
    assert str(told) == told.words() == "Three are negative. Leave them out."
    assert str(kind("Alone.")) == "Alone."


def test_errors_are_value_errors_and_warnings_user_warnings():
    assert issubclass(GeobgpError, ValueError) and issubclass(GeobgpWarning, UserWarning)


def test_errors_go_to_other_processes():
    told = DataError("Use less.", option="m", found=3, remedy=f"Try {option('m', 2)}.")
    again = pickle.loads(pickle.dumps(told))
    assert type(again) is DataError
    assert (str(again), again.option, again.found) == ("Use less. Try m=2.", "m", 3)


def test_each_interface_has_its_own_words():
    text = f"Use {option('crs', 'local')}, {option('m')}, or {option('output', python='another path')}."
    assert render_text(text) == "Use crs='local', m, or another path."
    assert render_text(text, lambda name, value: f"<{name}|{value}>") == "Use <crs|local>, <m|None>, or <output|None>."
    assert render_text("no option") == "no option"


def test_a_warning_points_to_the_line_that_called_geobgp():
    domain = geobgp.Domain.from_polygons(shapely.box(0, 0, 4, 4), cell_size=1, crs="local")
    with pytest.warns(DroppedPointsWarning) as caught:
        bin_points(np.array([[1.0, 1.0], [99.0, 99.0]]), domain)
    assert [w.filename for w in caught] == [__file__]
    with pytest.warns(CheckWarning) as caught:
        warn(CheckWarning("here"))
    assert [w.filename for w in caught] == [__file__]


def test_hearing_takes_our_warnings_and_leaves_the_others():
    captured = []
    with pytest.warns(DeprecationWarning, match="old") as caught, captured_warnings(captured.append):
        warn(CheckWarning("mine"))
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        warn(CheckWarning("mine"))
    assert [str(w) for w in captured] == ["mine", "mine"]
    assert [w.category for w in caught] == [DeprecationWarning]
    with pytest.warns(CheckWarning):
        warn(CheckWarning("heard no more"))


def test_hearing_within_hearing_goes_to_the_nearest():
    outer, inner = [], []
    with captured_warnings(outer.append):
        with captured_warnings(inner.append):
            warn(CheckWarning("in"))
        warn(CheckWarning("out"))
    assert ([str(w) for w in outer], [str(w) for w in inner]) == (["out"], ["in"])
