"""How Sphinx builds the site: `make docs`. Nothing is fetched, when building or when reading."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from nvmesim import __version__  # noqa: E402

project = "nvmesim"
author = "the nvmesim developers"
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extension",
]
exclude_patterns = ["_build", "*-head.md"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # reports that start with a comment, notebooks with "## "

default_role = "code"
napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
toc_object_entries = False

html_theme = "furo"
html_title = f"nvmesim {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
templates_path: list[str] = []
