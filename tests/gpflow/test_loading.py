"""GPflow is loaded quietly, or the user is told how to install it."""

import os
import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "gpflow":
            raise ModuleNotFoundError("No module named 'gpflow'", name="gpflow")

sys.meta_path.insert(0, Block())
import geobgp
try:
    import geobgp.gpflow.models
except geobgp.GeobgpError as error:
    print(isinstance(error, ImportError), error)
print("tensorflow" in sys.modules)
"""

QUIET = """
import os, warnings
warnings.simplefilter("error")
settings, filters = dict(os.environ), list(warnings.filters)
import geobgp.gpflow.models as models
tf = models.tf
tf.function(lambda x: tf.linalg.cholesky(x))(tf.eye(3, dtype=tf.float64))
# TensorFlow adds some variables of its own, and NumPy some filters; nothing that was there has changed.
print({k: os.environ.get(k) for k in settings} == settings, "TF_CPP_MIN_LOG_LEVEL" in os.environ)
print([f for f in warnings.filters if f in filters] == filters)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


def test_without_gpflow_the_error_has_the_install_line():
    done = run(BLOCKED)
    assert "pip install 'geobgp[gpflow]'" in done.stdout
    assert done.stdout.startswith("True ")
    assert done.stdout.endswith("False\n")


@pytest.mark.gpflow
@pytest.mark.slow
def test_import_writes_nothing_and_leaves_settings_alone():
    done = run(QUIET)
    assert done.stdout == "True False\nTrue\n"
    assert done.stderr == ""
