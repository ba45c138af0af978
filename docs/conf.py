"""How Sphinx builds the manual: ``python -m sphinx -W docs build/manual``.

Pages with code are run while they are built, so that every number and picture in them is what geobgp gives today.
"""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path

import geobgp

ROOT = Path(__file__).resolve().parent.parent
#: Where pages write files that belong to the manual, such as interactive maps.
GENERATED = ROOT / "docs" / "_generated"
shutil.rmtree(GENERATED, ignore_errors=True)
GENERATED.mkdir()
os.environ.update(GEOBGP_ROOT=str(ROOT), GEOBGP_MANUAL=str(GENERATED), COLUMNS="100")
os.environ.setdefault("GEOBGP_CACHE_DIR", str(ROOT / "build" / "manual-cache"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
#: Pictures and cards of the gallery, drawn by their own code.
GALLERY = ROOT / "docs" / "_gallery"
shutil.rmtree(GALLERY, ignore_errors=True)
GALLERY.mkdir()
runpy.run_path(str(ROOT / "docs" / "gallery" / "build.py"))["build"](GALLERY, GALLERY.name)

project = "geobgp"
author = "The geobgp developers"
version = release = geobgp.__version__
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx_design"]
exclude_patterns = ["_generated/**", "_gallery/**", "_build/**"]
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "geobgp"
html_static_path = ["_static"]
html_extra_path = ["_generated"]
html_css_files = ["manual.css"]
html_show_sourcelink = False
# Pages without pages below them.
html_sidebars = {"index": [], "gallery": [], "getting-started": []}
html_theme_options = {
    "header_links_before_dropdown": 6,
    "show_nav_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copyright = "The geobgp developers, MIT licence"
