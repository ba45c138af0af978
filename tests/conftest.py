"""What all tests share."""

import os

# Quiet, single-threaded and the same on every machine; read before TensorFlow or BLAS are loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest


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
