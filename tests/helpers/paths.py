"""Where things are in the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_data"
FIXTURES = ROOT / "tests" / "fixtures"
HELPERS = ROOT / "tests" / "helpers"
