from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geobgp.errors import DataError
from geobgp.output import palette


def to_oklab(rgb: np.ndarray) -> np.ndarray:
    """The published forward matrices, written out independently of the package's inverse ones."""
    c = np.asarray(rgb, float) / 255
    linear = np.where(c > 0.04045, ((c + 0.055) / 1.055) ** 2.4, c / 12.92)
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear @ to_lms.T) @ to_lab.T


@pytest.mark.parametrize("ramp", palette.RAMPS)
def test_steps_of_a_ramp_look_equal(ramp):
    lab = to_oklab(palette.colours(33, ramp))
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=1)
    halves = [steps[:16], steps[16:]] if ramp == "signed" else [steps]
    for half in halves:
        # Eight bits round a colour by up to about 0.004 in OKLab's units, worst in the darkest ones.
        assert np.abs(half - half.mean()).max() < 0.006


@pytest.mark.parametrize("ramp", [r for r in palette.RAMPS if r != "signed"])
def test_ramps_stay_in_order_in_grey(ramp):
    lightness = to_oklab(palette.colours(64, ramp))[:, 0]
    assert (np.diff(lightness) < 0).all()
    assert lightness[0] > 0.95
    assert lightness[-1] < 0.3


def test_the_middle_of_the_signed_ramp_is_its_lightest():
    lightness = to_oklab(palette.colours(65, "signed"))[:, 0]
    assert lightness.argmax() == 32


def test_colours_are_cached_values_nobody_can_change():
    first = palette.colours(5)
    first[:] = 0
    assert palette.colours(5).any()


def test_unknown_ramp_and_no_colour():
    with pytest.raises(DataError, match="spectre"):
        palette.colours(3, "spectre")
    with pytest.raises(DataError, match="at least one"):
        palette.colours(0)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200))
def test_every_value_has_one_class_and_every_break_is_inside(values):
    values = np.array(values)
    classes = palette.quantile_classes(values)
    index = classes.index(values)
    assert index.min() >= 0
    assert index.max() < classes.n
    assert (np.diff(classes.breaks) > 0).all()
    low = np.r_[-np.inf, classes.breaks][index]
    high = np.r_[classes.breaks, np.inf][index]
    assert ((low < values) & (values <= high)).all()
    assert len(classes.labels()) == classes.n == len(classes.hex)


def test_classes_lie_at_the_quantiles():
    values = np.exp(np.random.default_rng(0).normal(size=20_000))
    classes = palette.quantile_classes(values)
    share = np.bincount(classes.index(values), minlength=classes.n) / len(values)
    expected = np.diff([0, *palette.BREAK_PROBABILITIES, 1])
    np.testing.assert_allclose(share, expected, atol=0.02)


def test_nan_has_no_class_and_a_constant_field_one():
    classes = palette.quantile_classes(np.array([2.0, 2.0, np.nan]))
    assert classes.n == 1
    assert classes.labels() == ["all values"]
    assert classes.index(np.array([2.0, np.nan])).tolist() == [0, -1]
    with pytest.raises(DataError, match="No finite value"):
        palette.quantile_classes(np.array([np.nan]))


def test_quantiles_that_differ_by_rounding_noise_are_one_class():
    assert palette.quantile_classes(65.665 + 0.028 * np.linspace(0, 1, 1000)).n <= 2
    assert palette.quantile_classes(np.linspace(1.0, 2.0, 1000)).n == 10


positive = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=200)


@given(positive)
def test_round_classes_are_round_few_and_wide(values):
    classes = palette.round_classes(np.array(values))
    assert 1 <= classes.n <= palette.MOST_BREAKS + 1
    assert (np.diff(classes.breaks) > 0).all()
    assert classes.breaks[-1] >= palette.LEAST_RANGE * classes.breaks[0]
    digits = {f"{b:.6e}".split("e")[0].rstrip("0").rstrip(".") for b in classes.breaks}
    assert digits <= {f"{d:g}" for d in palette.ROUND_NUMBERS[0] + palette.ROUND_NUMBERS[1]}
    assert len(set(classes.labels())) == classes.n


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1.6))
def test_little_variation_has_few_colours(middle, factor):
    values = middle * np.geomspace(1, factor, 500)
    used = np.unique(palette.round_classes(values).index(values))
    assert len(used) <= 4 and len(used) == used[-1] - used[0] + 1
    assert used[0] > 0 and used[-1] < palette.round_classes(values).n - 1, "neither the lightest nor the darkest"
    if factor < 1.02:
        assert len(used) == 1, "rounding noise"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0, 3.0])
def test_much_variation_is_told_apart(seed, spread):
    values = np.exp(spread * np.random.default_rng(seed).normal(size=5000))
    classes = palette.round_classes(values)
    share = np.bincount(classes.index(values), minlength=classes.n) / len(values)
    assert classes.n >= 6 and share.max() <= 0.6
    assert (share > 0).sum() >= classes.n - 1


def test_a_long_tail_does_not_take_the_breaks_from_the_land():
    rng = np.random.default_rng(0)
    values = np.r_[rng.uniform(0.11, 0.29, 5000), np.geomspace(1, 1000, 100)]
    classes = palette.round_classes(values)
    share = np.bincount(classes.index(values), minlength=classes.n) / len(values)
    assert share.max() < 0.6 and classes.breaks[-1] >= 50


def test_zeros_and_negative_numbers_have_classes():
    assert palette.round_classes(np.zeros(5)).labels() == ["all values"]
    classes = palette.round_classes(np.array([0.0, 0.0, 1.0, 9.0]))
    assert classes.index(np.array([0.0]))[0] == 0
    assert palette.round_classes(np.linspace(-3, 3, 100)).breaks.tolist() == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize("values", [65.665 + 0.03 * np.linspace(0, 1, 99), np.full(9, 65.7)])
def test_an_uncertainty_that_is_the_same_everywhere_is_one_class_and_a_sentence(values):
    classes = palette.classes_for("cv", values)
    assert classes.n == 1 and classes.labels() == ["about 66 % everywhere"]
    assert palette.classes_for("sd", values, "events per km²").labels() == ["about 66 events per km² everywhere"]
    assert palette.classes_for("cv", np.linspace(20, 90, 99)).n > 4


def test_ratios_have_fixed_classes_about_one():
    classes = palette.classes_for("ratio_q05", np.array([3.0]))
    assert classes.breaks.tolist() == [0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0]
    lightness = to_oklab(classes.colours)[:, 0]
    assert classes.index(np.array([1.0]))[0] == 4 == lightness.argmax()
    assert (np.diff(lightness[:5]) > 0).all() and (np.diff(lightness[4:]) < 0).all()
    red_less_blue = classes.colours[:, 0].astype(int) - classes.colours[:, 2]
    assert (red_less_blue[:4] < 0).all() and (red_less_blue[5:] > 0).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100))
def test_differences_have_classes_even_about_zero(values):
    classes = palette.signed_classes(np.array(values))
    np.testing.assert_array_equal(classes.breaks, -classes.breaks[::-1])
    assert (np.diff(classes.breaks) > 0).all()
    assert classes.index(np.array([0.0]))[0] == (classes.n - 1) // 2


def test_named_classes_keep_their_names():
    classes = palette.classes_for("excursion", np.array([0.0]))
    assert classes.labels() == ["surely below", "not sure", "surely above"]
    assert classes.index(np.array([-1.0, 0.0, 1.0])).tolist() == [0, 1, 2]
