"""Nothing heavy is imported before it is needed, and the public names are what they should be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nvmesim

HEAVY = ["numba", "numpy", "polars", "altair", "scipy", "pydantic", "simpy", "rich", "vl_convert"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "degraded.toml"


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, **environment},
    )  # fmt: skip


HELP = "from nvmesim.cli.main import run_command; run_command(['--help'])"


@pytest.mark.parametrize(
    ("code", "may"),
    [("import nvmesim", ()), (HELP, ()), ("import nvmesim.scenario.load", ("numpy", "pydantic"))],
)
def test_nothing_heavy_is_imported(code, may):
    said = python(f"{code}\nimport sys\nprint('LOADED', *sys.modules)")
    loaded = said.stdout.split("LOADED")[1].split()
    assert set(HEAVY) & set(loaded) <= set(may)


def test_no_data_file_is_read_when_modules_are_imported():
    code = (
        "import importlib, pathlib, pkgutil, sys\n"
        "import nvmesim\n"
        "inside = str(pathlib.Path(nvmesim.__file__).parent)\n"
        "def note(event, found):\n"
        "    if event == 'open' and str(found[0]).startswith(inside):\n"
        "        print('READ', found[0])\n"
        "sys.addaudithook(note)\n"
        "for module in pkgutil.walk_packages(nvmesim.__path__, 'nvmesim.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
    )
    read = [line.split()[1] for line in python(code).stdout.splitlines() if "READ" in line]
    data = [name for name in read if not name.endswith((".py", ".pyc"))]
    assert [name for name in data if "diagnosis" not in name] == []


def test_a_prediction_imports_neither_numba_nor_scipy():
    """They take as long as the prediction itself; the loop's machine code is on disk by then."""
    code = (
        "from nvmesim.cli.main import run_command\n"
        f"run_command(['run', {str(EXAMPLE)!r}, '--set', 'run.requests=2000'])\n"
        "import sys; print('LOADED', *sys.modules)"
    )
    python(code)
    loaded = set(python(code).stdout.split("LOADED")[1].split())
    assert not loaded & {"numba", "scipy", "altair", "polars", "simpy", "vl_convert"}


def test_public_names():
    assert nvmesim.__all__ == sorted(nvmesim.__all__)
    for name in nvmesim.__all__:
        assert getattr(nvmesim, name) is not None
        assert name in dir(nvmesim)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = nvmesim.simulat


def test_functions_stay_functions_when_modules_of_their_names_are_imported():
    code = "import nvmesim, nvmesim.predict.simulate\nfrom nvmesim import catalog\n"
    python(f"{code}assert callable(nvmesim.simulate)\nassert catalog.names('cpu')")


def test_the_notice_of_compiling_comes_once(tmp_path):
    code = "from nvmesim.cli.output import say_if_compiling as s; s('compiled'); s('simpy')"
    fresh = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert fresh.stderr == "nvmesim: compiling the engine (once, about 20 s)…\n"
