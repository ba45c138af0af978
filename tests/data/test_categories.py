"""What levels are called: by the raster's category names, its attribute table, an array's flags, or the user."""

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401
import xarray as xr
from shapely.geometry import box

from geobgp import Categorical, Domain, Group, Smooth
from geobgp.data.effects import fixed_effects
from geobgp.data.sources import Reading
from geobgp.errors import DataError, InputWarning

CATEGORIES = (
    "<CategoryNames><Category/><Category>forest</Category><Category/><Category>meadow</Category></CategoryNames>"
)
TABLE = """<GDALRasterAttributeTable tableType="thematic">
<FieldDefn index="0"><Name>COUNT</Name><Type>0</Type><Usage>1</Usage></FieldDefn>
<FieldDefn index="1"><Name>VALUE</Name><Type>0</Type><Usage>5</Usage></FieldDefn>
<FieldDefn index="2"><Name>Notes</Name><Type>2</Type><Usage>0</Usage></FieldDefn>
<FieldDefn index="3"><Name>LandCover</Name><Type>2</Type><Usage>2</Usage></FieldDefn>
<Row index="0"><F>7</F><F>1</F><F>a</F><F>Forest &amp; scrub</F></Row>
<Row index="1"><F>8</F><F>3</F><F>b</F><F>Meadow</F></Row>
<Row index="2"><F>8</F><F>5</F><F>b</F><F>Meadow</F></Row>
</GDALRasterAttributeTable>"""


@pytest.fixture
def domain():
    return Domain.from_polygons(box(500_000, 5_000_000, 510_000, 5_010_000), cell_size=1000, crs=32633)


@pytest.fixture
def raster(tmp_path):
    """A raster of the codes 1, 3 and 5 with what GDAL keeps beside it."""

    def write(beside, codes=(1, 3, 5), **profile):
        values = np.repeat(np.array(codes, "u1"), [4, 3, 3])[None].repeat(10, axis=0)
        path = tmp_path / "cover.tif"
        transform = rasterio.Affine(1000, 0, 500_000, 0, -1000, 5_010_000)
        with rasterio.open(
            path, "w", driver="GTiff", height=10, width=10, count=1, dtype="uint8", crs=32633, transform=transform
        ) as out:
            out.write(values, 1)
            if profile.get("unit"):
                out.units = (profile["unit"],)
        text = f'<PAMDataset><PAMRasterBand band="1">{beside}</PAMRasterBand></PAMDataset>'
        (tmp_path / "cover.tif.aux.xml").write_text(text, encoding="utf-8")
        return str(path)

    return write


def effects_of(domain, **covariates):
    return fixed_effects(covariates, Reading(domain))


def test_category_names_are_levels_without_being_asked(domain, raster):
    path = raster(CATEGORIES)
    for given in (path, f"{path}|levels", Categorical(path)):
        effects = effects_of(domain, cover=given)
        assert effects.levels("cover") == ["forest", "meadow", "5"]
    shares = effects.columns[:, 1:] * effects.scales + effects.means
    np.testing.assert_allclose(shares.sum(axis=0), [30, 30])


def test_an_attribute_table_joins_codes_of_one_name(domain, raster):
    path = raster(TABLE)
    effects = effects_of(domain, cover=path)
    assert effects.levels("cover") == ["Meadow", "Forest & scrub"]
    for reference in ("Forest & scrub", 1):
        assert effects_of(domain, cover=Categorical(path, reference)).levels("cover")[0] == "Forest & scrub"
    with pytest.raises(DataError, match="no level 'Sand' on the land; its levels are 'Forest & scrub', 'Meadow'"):
        effects_of(domain, cover=Categorical(path, "Sand"))
    assert effects_of(domain, cover=Group(path)).levels("cover") == ["Forest & scrub", "Meadow"]


def test_names_of_the_user_come_first(domain, raster):
    path = raster(CATEGORIES)
    effects = effects_of(domain, cover=Categorical(path, "wood", {1: "wood", "5": "bog"}))
    assert effects.levels("cover") == ["wood", "meadow", "bog"]


def test_flags_of_an_array(domain, raster):
    with rasterio.open(raster("")) as opened:
        values = opened.read(1)
    east, north = 500_500 + 1000 * np.arange(10), 5_009_500 - 1000 * np.arange(10)
    array = xr.DataArray(values, coords={"y": north, "x": east}, dims=("y", "x")).rio.write_crs(32633)
    array.attrs |= {"flag_values": [1, 3], "flag_meanings": "wood heath"}
    assert effects_of(domain, cover=Categorical(array)).levels("cover") == ["wood", "heath", "5"]
    rain = array.copy(data=np.arange(100.0).reshape(10, 10)).assign_attrs(units="mm")
    assert effects_of(domain, rain=Smooth(rain)).block("rain").unit == "mm"


def test_units_of_numbers(domain, raster):
    assert effects_of(domain, x=f"{raster('', unit='degree')}|numbers").block("x").unit == "degree"
    assert effects_of(domain, x=domain.node_points[:, 0]).block("x").unit == ""


def test_a_curve_of_levels_is_refused(domain):
    words = np.where(domain.node_points[:, 0] > 505_000, "a", "b")
    with pytest.raises(DataError, match="'x' has levels, 'a', 'b'; a curve is of numbers"):
        effects_of(domain, x=Smooth(words))


def test_polygons_with_several_columns_need_one_of_the_covariate_s_name(domain):
    import geopandas as gpd

    halves = [box(500_000, 5_000_000, 505_000, 5_010_000), box(505_000, 5_000_000, 510_000, 5_010_000)]
    frame = gpd.GeoDataFrame({"country": ["x", "x"], "Ward": ["a", "b"]}, geometry=halves, crs=32633)
    assert effects_of(domain, ward=Group(frame)).levels("ward") == ["a", "b"]
    assert effects_of(domain, district=Group(frame)).levels("district") == ["a", "b"]
    frame["Ward"] = [1, 2]
    with pytest.raises(DataError, match=r"have 2 columns: 'country', 'Ward'\. Which is meant"):
        effects_of(domain, district=frame)


def test_names_of_codes_that_no_land_has_are_told_of(domain, raster):
    path = raster("")
    words = "names for 1 code that no land has, '9', and none for its 3 levels '1', '3', '5'"
    with pytest.warns(InputWarning, match=words):
        effects_of(domain, cover=Categorical(path, names={9: "x"}))
    # A whole legend, of which the land has a part.
    legend = {1: "forest", 3: "meadow", 5: "bog", 9: "x"}
    assert effects_of(domain, cover=Categorical(path, names=legend, reference=1)).columns.shape[1] == 3


def test_levels_that_are_decimals_are_told_of(domain):
    transform = rasterio.Affine(1000, 0, 500_000, 0, -1000, 5_010_000)
    values = np.repeat(np.linspace(0.25, 9.25, 10), 10).reshape(10, 10)
    array = xr.DataArray(values, dims=("y", "x")).rio.write_crs(32633).rio.write_transform(transform)
    with pytest.warns(InputWarning, match="decimals, such as 0.25: each of its 10 values has an effect of its own"):
        effects_of(domain, height=Categorical(array))
    effects_of(domain, height=Categorical(array.round()))
