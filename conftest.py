"""What all tests and doctests share."""

import os
from pathlib import Path

# Quiet, single-threaded and the same on every machine; read before TensorFlow or BLAS are loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

ROOT = Path(__file__).parent
#: Scripts for other interpreters, and modules without tests.
collect_ignore = ["tests/helpers", "geobgp/qgis"]
#: What cannot even be imported without GPflow.
NEED_GPFLOW = [ROOT / "tests/gpflow/test_models.py", ROOT / "geobgp/gpflow/models.py", ROOT / "geobgp/gpflow/fit.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-gpflow", action="store_true", help="leave out what needs GPflow (marker gpflow, and its modules)"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("without_gpflow") and collection_path in NEED_GPFLOW else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("without_gpflow"):
        left_out = [item for item in items if item.get_closest_marker("gpflow")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Keep the tests' bases out of the user's cache, and theirs out of the tests."""
    before = os.environ.get("GEOBGP_CACHE_DIR")
    os.environ["GEOBGP_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["GEOBGP_CACHE_DIR"]
    else:
        os.environ["GEOBGP_CACHE_DIR"] = before


@pytest.fixture
def _no_window():
    """Draw without a screen, and close all figures."""
    import matplotlib.pyplot as plt

    before = plt.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
