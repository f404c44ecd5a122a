"""The wheel works by itself: no file of the source tree is needed, from any folder."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import nvmesim
from tests.cli.conftest import SMALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def build(kind: str, folder: Path) -> Path:
    """Build a wheel or sdist without the network."""
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (found,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the wheel's content; the dependencies come from the environment of the tests.

    That environment has the source tree by a .pth file, which a path of PYTHONPATH does not read.
    """
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


@pytest.fixture
def run(installed, tmp_path):
    """Run the installed command line in an empty folder, with the user's site left out."""

    def run(*arguments: str, code: int = 0) -> str:
        libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        environment = {
            key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HOME")
        }
        environment["PYTHONPATH"] = os.pathsep.join([str(installed), *sorted(libraries)])
        environment["XDG_CACHE_HOME"] = environment["HOME"] = str(tmp_path)
        done = subprocess.run(
            [sys.executable, "-S", "-c", "from nvmesim.cli import main; main()", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


def test_the_wheel_holds_the_package_and_its_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "nvmesim/py.typed", "nvmesim/catalog/data/drives/hdd-7200.toml",
        "nvmesim/study/validate/sets/team-jbod/set.toml",
    ):  # fmt: skip
        assert wanted in names
    assert not [n for n in names if n.startswith(("tests/", "docs/", "benchmarks/"))]
    assert not [n for n in names if n.endswith((".pyc", ".nbi", ".nbc"))]


def test_the_version_comes_from_one_place(wheel):
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert wheel.name.startswith(f"nvmesim-{nvmesim.__version__}-py3-none-any")
    files = [
        p for p in (ROOT / "nvmesim").rglob("*.py") if "__version__ = " in p.read_text("utf-8")
    ]
    assert files == [ROOT / "nvmesim" / "version.py"]


def test_no_dependency_is_undeclared(wheel):
    """What the package imports at its top is declared, and nothing else."""
    metadata = zipfile.ZipFile(wheel).read(
        next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("METADATA"))
    )
    declared = {
        re.split(r"[ ;<>=!\[]", line.removeprefix("Requires-Dist: "))[0].lower()
        for line in metadata.decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    assert declared == {re.split(r"[<>=]", d)[0].lower() for d in PROJECT["dependencies"]}


def test_run_and_report_from_another_folder(run, tmp_path):
    (tmp_path / "s.toml").write_text(SMALL)
    answer = json.loads(run("run", "s.toml", "--json", "--report", "s.html"))
    assert answer["total"]["iops"]["value"] > 1000
    assert "</html>" in (tmp_path / "s.html").read_text("utf-8")


@pytest.mark.slow
def test_calibrate_from_another_folder(run, tmp_path):
    found = sorted(str(p) for p in (ROOT / "calibration/local-disk").glob("randread_qd*.json"))
    run("trace", *found)
    run("calibrate", *found, "-o", "p.toml")
    assert tomllib.loads((tmp_path / "p.toml").read_text("utf-8"))["kind"] == "drive"


@pytest.mark.slow
def test_validate_and_size_from_another_folder(run):
    sets = json.loads(run("validate", "interfaces", "--json"))["sets"]
    assert {line["set"] for line in sets} == {"interfaces"}
    sized = json.loads(run("size", "--iops", "1M", "--utilization", "50%", "--stack", "spdk",
                           "--json"))  # fmt: skip
    assert sized["ghz"] > 0
    assert "samsung-980pro-1tb" in run("catalog", "list")


def test_what_runs_is_locked_as_what_develops():
    """`make run` installs a part of what `make test` does: the same versions, the same hashes."""
    whole, part = (
        {entry.strip() for entry in re.split(r"\n(?! )", (ROOT / name).read_text("utf-8")) if entry}
        for name in ("requirements.lock", "requirements-run.lock")
    )
    assert part < whole
    named = {re.split("[=;]", entry)[0] for entry in part}
    assert {re.split("[<>=]", d)[0] for d in PROJECT["dependencies"]} <= named


def test_the_source_distribution_can_be_built_from(tmp_path):
    archive = build("sdist", tmp_path)
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "nvmesim/py.typed", "Makefile",
                   "requirements.lock", "requirements-run.lock", "tests/test_packaging.py",
                   "docs/conf.py",
                   "calibration/published/team-jbod/set.toml"):  # fmt: skip
        assert wanted in names
    assert not [n for n in names if n.startswith(("docs/generated", "build", ".venv"))]
