"""`nvmesim lab`: the notebooks in a folder of your own, and JupyterLab there."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import click

from nvmesim.errors import InputError


@click.command(epilog="Example: nvmesim lab my-notebooks")
@click.argument(
    "folder", default="nvmesim-notebooks", metavar="[FOLDER]", type=click.Path(path_type=Path)
)
@click.option("--no-browser", is_flag=True, help="Only serve; print the address.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the server; else a free one.")
@click.option("--copy-only", is_flag=True, help="Copy the notebooks and start nothing.")
def lab(folder: Path, no_browser: bool, port: int | None, copy_only: bool) -> int:
    """Copy the notebooks to FOLDER and start JupyterLab there.

    Files that are there already stay as they are, so that your own changes are kept.
    """
    if not copy_only and importlib.util.find_spec("jupyterlab") is None:
        raise InputError(
            "JupyterLab is not installed: pip install 'nvmesim[lab]', or use --copy-only"
        )
    copied, kept = copy_notebooks(folder)
    click.echo(f"{folder}: {copied} files copied, {kept} were there already")
    if copy_only:
        return 0
    command = [sys.executable, "-m", "jupyterlab", str(folder)]
    command += ["--no-browser"] if no_browser else []
    command += [] if port is None else [f"--port={port}"]
    return subprocess.run(command, check=False).returncode


def copy_notebooks(folder: Path) -> tuple[int, int]:
    """Copy what is not in *folder* yet; return how many files were copied and were there."""
    notebooks, captures = sources()
    wanted = {file: folder / file.name for file in sorted(notebooks.glob("*.ipynb"))}
    wanted |= {file: folder / "captures" / file.name for file in sorted(captures.glob("*.json"))}
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder")
    copied = 0
    for source, target in wanted.items():
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        copied += 1
    return copied, len(wanted) - copied


def sources() -> tuple[Path, Path]:
    """Return the folders of the notebooks and of the captures that they read.

    An installed package carries them in ``nvmesim/lab``; a source tree has them at its top.
    """
    package = Path(__file__).resolve().parents[1]
    for notebooks, captures in (
        (package / "lab" / "notebooks", package / "lab" / "captures"),
        (package.parent / "notebooks", package.parent / "calibration" / "local-disk"),
    ):
        if any(notebooks.glob("*.ipynb")):
            return notebooks, captures
    raise InputError("this installation has no notebooks; take them from the source distribution")
