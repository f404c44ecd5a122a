"""The reference says all there is: keys, names, and the site builds without a warning."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nvmesim
from nvmesim.catalog import get
from nvmesim.catalog.toml import show_quantity, show_value
from nvmesim.scenario import schema, workload_keys
from nvmesim.scenario.fields import Strict

DOCS = Path(__file__).parents[2] / "docs"
MODELS = [
    value
    for value in {**vars(schema), **vars(workload_keys)}.values()
    if isinstance(value, type) and issubclass(value, Strict)
]
MODELS = [model for model in MODELS if model not in (Strict, schema.Scenario)]


@pytest.fixture
def pages(monkeypatch):
    """docs/pages.py as a module."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("pages")
    sys.modules.pop("pages")


def test_every_table_of_a_scenario_is_on_the_page(pages):
    assert set(pages.SCENARIO_TABLES.values()) == set(MODELS)
    assert all(set(pages.field_docs(model)) == set(model.model_fields) for model in MODELS)
    text = pages.scenario_page()
    assert "| `outstanding` | whole number, ≥ 1, ≤ 65536 |  | Requests" in text
    assert '| `chunk` | `"64 KiB"` |' in text


def test_units_and_docstrings_of_profiles_are_on_the_page(pages):
    text = pages.profile_page()
    assert '| `die` | `"54 us"` | **needed** | Mean time a die is busy for one unit. |' in text
    assert "(DESIGN" not in text


def test_every_command_is_on_the_page(pages):
    text = pages.command_page()
    for name in ("run", "calibrate", "sweep", "catalog show", "lab"):
        assert f"\n## nvmesim {name}\n" in text
    assert "--precision" in text


def test_every_public_name_is_on_the_page(pages):
    text = pages.api_page()
    for name in nvmesim.__all__:
        is_module = isinstance(getattr(nvmesim, name), ModuleType)
        assert (f"`ns.{name}`" if is_module else f":: nvmesim.{name}\n") in text


def test_every_number_of_the_catalog_is_on_the_page(pages):
    text = pages.number_page()
    stack = get("stack", "linux-io_uring")
    assert stack.wakeup_half.low
    low, high = (show_value(end, "time") for end in (stack.wakeup_half.low, stack.wakeup_half.high))
    value = show_quantity(stack, "wakeup_half")
    assert f"| `wakeup_half` | {value} | {low} to {high} | fitted |" in text
    assert "| `filesystems.ntfs` | 15000 | 12200 to 17700 | fitted |" in text


def test_every_key_of_a_result_is_explained(pages):
    scenario = nvmesim.Scenario.model_validate(pages.EXAMPLE)
    found = nvmesim.simulate(scenario, requests=2000, reliefs=False).to_json()
    text = (DOCS / "json-head.md").read_text("utf-8")
    said = set(re.findall(r"`([\w.…]+)`", text)) | set(re.findall(r"[.…](\w+)", text))
    assert set(found) <= said


def test_every_member_that_the_page_of_the_inside_names_is_there():
    text = (DOCS / "reference" / "inside.md").read_text("utf-8")
    listed = re.findall(r"automodule:: (\S+)\n +:members: (\S.*)", text)
    assert listed
    for module, members in listed:
        found = importlib.import_module(module)
        assert [m for m in members.split(", ") if not hasattr(found, m)] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing(tmp_path):
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("the extra docs is not installed")
    from tests.engines.test_modes import run_python

    # Extensions of Sphinx warn of each other; those are not ours.
    run_python(
        "import sys, warnings; warnings.simplefilter('ignore', DeprecationWarning);"
        "warnings.simplefilter('ignore', PendingDeprecationWarning);"
        "from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:] + "
        f"['-W', '-q', '-b', 'html', 'docs', {str(tmp_path)!r}]))"
    )
    fetched = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]+\""
    )
    for page in tmp_path.rglob("*.html"):
        assert fetched.search(page.read_text("utf-8")) is None, page
