from __future__ import annotations

import io

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp
from PIL import Image

from geobgp.output import palette
from geobgp.web import page as embed

codes = hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12))


@given(codes)
def test_unpack_gives_back_what_was_packed(array):
    np.testing.assert_array_equal(embed.unpack(embed.pack(array), array.shape), array)


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
    text = embed.pack(np.round(1000 * np.log(field) + 5000))
    assert len(text) < 0.6 * field.size
