from __future__ import annotations

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from geobgp.output import palette
from geobgp.web import embed

codes = hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12))


@given(codes)
def test_unpack_gives_back_what_was_packed(array):
    np.testing.assert_array_equal(embed.unpack(embed.pack(array), array.shape), array)


@given(hnp.arrays(float, 20, elements=st.floats(1e-4, 1e4)))
def test_numbers_are_right_to_half_a_step(values):
    scale = embed.Scale.logarithmic(values)
    back = scale.decode(scale.encode(values))
    np.testing.assert_allclose(back, values, rtol=0.51 * embed.RELATIVE_STEP)


def test_none_and_zero_have_codes_of_their_own():
    values = np.array([np.nan, 0.0, 1e-20, 1.0, 50.0])
    scale = embed.Scale.logarithmic(values)
    np.testing.assert_allclose(scale.decode(scale.encode(values)), [np.nan, 0, 0, 1, 50], rtol=1e-3)
    chance = embed.Scale(0.0, 0.001, linear=True)
    p = np.array([np.nan, 0.0, 0.4242, 1.0])
    np.testing.assert_allclose(chance.decode(chance.encode(p)), p, atol=0.0005001)


def test_one_absurd_value_does_not_hide_the_others():
    values = np.r_[np.linspace(0.1, 2, 50), 1e19]
    scale = embed.Scale.logarithmic(values)
    np.testing.assert_allclose(scale.decode(scale.encode(values)), values, rtol=0.51 * embed.RELATIVE_STEP)
    values = np.r_[values, np.inf, -1.0]
    assert scale.decode(scale.encode(values))[-1] == 0


def test_no_values_at_all_make_a_scale():
    values = np.full(3, np.nan)
    scale = embed.Scale.logarithmic(values)
    assert np.isnan(scale.decode(scale.encode(values))).all()


def test_the_picture_is_a_palette_png_that_others_read():
    index = np.arange(-1, 11).reshape(3, 4) % 11 - 1
    colours = palette.colours(10)
    image = Image.open(io.BytesIO(embed.palette_png(index, colours)))
    assert image.mode == "P"
    rgba = np.asarray(image.convert("RGBA"))
    assert rgba.shape == (3, 4, 4)
    np.testing.assert_array_equal(rgba[..., 3] == 0, index == -1)
    np.testing.assert_array_equal(rgba[index >= 0][:, :3], colours[index[index >= 0]])


def test_smooth_fields_pack_small():
    y, x = np.mgrid[:400, :400]
    field = np.exp(np.sin(x / 90) + np.cos(y / 70))
    text = embed.pack(embed.Scale.logarithmic(field).encode(field))
    assert len(text) < 0.6 * field.size
