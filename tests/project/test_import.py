"""What is loaded when, and how fast: each in a fresh interpreter."""

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = (
    "tensorflow", "gpflow", "matplotlib", "folium", "tensorflow_probability", "xarray", "rasterio", "dask",
    "rich",
)  # fmt: skip


def modules_after(code: str) -> set[str]:
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.strip().splitlines()[-1]))


def fastest(*arguments: str, runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        times.append(time.perf_counter() - begin)
    return min(times)


@pytest.mark.parametrize(
    "code",
    [
        "import geobgp; geobgp.__all__, dir(geobgp)",
        "from geobgp.cli.app import main; assert main(['--help']) == 0",
        "from geobgp.cli.app import main; assert main(['map', '--help']) == 0",
        "from geobgp.cli.app import main; assert main(['demo', '--help']) == 0",
        "from geobgp.cli.app import main; assert main(['--version']) == 0",
    ],
)
def test_nothing_heavy_is_loaded(code):
    loaded = modules_after(code)
    assert not {name for name in loaded if name.split(".")[0] in (*HEAVY, "numpy", "scipy", "geopandas")}


def test_the_usual_objects_load_no_plotting_and_no_tensorflow():
    loaded = modules_after("from geobgp import Domain, HarmonicBasis, LGCP, Posterior, map_intensity")
    heavy = ("tensorflow", "gpflow", "matplotlib", "folium", "dask")
    assert not {name for name in loaded if name.split(".")[0] in heavy}


@pytest.mark.parametrize("arguments", [("-c", "import geobgp"), ("-m", "geobgp.cli.app", "--help")])
def test_start_takes_less_than_a_second(arguments):
    # Against a bare interpreter, so that a busy machine does not count.
    assert fastest(*arguments) - fastest("-c", "pass") < 1.0


def test_every_public_name_is_there():
    import geobgp

    for name in geobgp.__all__:
        assert getattr(geobgp, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = geobgp.nonsense


def test_type_checkers_see_what_is_loaded():
    import geobgp

    block = next(one for one in ast.parse(Path(geobgp.__file__).read_text("utf-8")).body if isinstance(one, ast.If))
    seen = {alias.asname: one.module for one in block.body for alias in one.names}
    assert seen == {name: f"geobgp.{module}" for name, module in geobgp._HOME.items()}
    assert [*seen] and sorted(seen) == geobgp.__all__
