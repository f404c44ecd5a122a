"""Modules that lie in the current folder under the names of those that commands start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = (
    "nvmesim", "numpy", "numba", "polars", "json", "asyncio", "multiprocessing", "concurrent",
    "uvicorn", "starlette", "dask", "distributed", "jupyterlab", "jupyter_server", "notebook",
    "ipykernel", "ipykernel_launcher", "IPython", "sitecustomize", "usercustomize", "webbrowser",
)  # fmt: skip
PROGRAM = "import sys; sys.path.remove(''); from nvmesim.cli import main; main()"
"""As the installed command begins: the current folder is not on the path."""
COMMANDS = {
    "run": "run two.toml",
    "sweep": "sweep two.toml --over drives.0.count=2,3 --workers 2 -o table.csv",
    "choose": "choose goal.toml --workers 2",
    "calibrate": "calibrate points.csv -o drive.toml",
    "ui": "ui --no-browser",
    "lab": "lab --no-browser --allow-root",
}
GOAL = """
scenario = "two.toml"
[candidates]
"drives.0.count" = [2, 3]
[constraints]
iops = "10k/s"
[objective]
minimize = "drives"
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_what_lies_in_the_current_folder_is_not_run(
    command: str, files: dict[str, Path], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n", "utf-8")
    (tmp_path / "goal.toml").write_text(GOAL, "utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *COMMANDS[command].split()], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:  # fmt: skip
        if command in ("ui", "lab"):
            assert process.stdout is not None
            assert any("http://127.0.0.1" in line or "http://localhost" in line
                       for line in process.stdout)  # fmt: skip
            os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate(timeout=120)[0]
    assert not mark.exists(), mark.read_text("utf-8")
    assert process.returncode in (0, 1, -signal.SIGKILL), said
