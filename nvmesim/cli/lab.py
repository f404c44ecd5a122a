"""`nvmesim lab`: notebooks in a folder of your own, and JupyterLab; `nvmesim ui`: the page."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click

from nvmesim.cli.output import option
from nvmesim.errors import InputError
from nvmesim.version import install_command

NEEDED: Final = ("jupyterlab", "ipykernel", "ipywidgets")
QUIET: Final = ("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",)
"""The server asks the network for nothing on its own."""


@click.command(epilog="Example: nvmesim lab my-notebooks")
@click.argument(
    "folder", default="nvmesim-notebooks", metavar="[FOLDER]", type=click.Path(path_type=Path)
)
@option("--no-browser", "Only serve; print the address.", is_flag=True)
@option("--port", "Port of the server; else a free one.", type=click.IntRange(0, 65535))
@option("--copy-only", "Copy the notebooks and start nothing.", is_flag=True)
@option("--allow-root", "Serve as root, which Jupyter refuses otherwise.", is_flag=True)
def lab(
    folder: Path, no_browser: bool, port: int | None, copy_only: bool, allow_root: bool
) -> int:  # fmt: skip
    """Copy the notebooks to FOLDER and start JupyterLab there.

    Files that are there already stay as they are, so that your own changes are kept.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing and not copy_only:
        raise InputError(
            f"JupyterLab is not installed ({', '.join(missing)}): {install_command('lab')}, or use "
            "--copy-only"
        )
    _copy_notebooks(folder)
    if copy_only:
        return 0
    command = [sys.executable, "-P", "-m", "jupyterlab", str(folder), *QUIET]
    command += ["--no-browser"] if no_browser else []
    command += ["--allow-root"] if allow_root else []
    command += [] if port is None else [f"--port={port}", "--ServerApp.port_retries=0"]
    return _served(command)


def _served(command: list[str]) -> int:
    """Run the server until it ends. Ctrl-C is for it: it asks first; a SIGTERM is passed on.

    Neither the server nor the kernels that it starts look for their own modules in the folder that
    they are started in: a stranger's ``jupyterlab.py`` may lie there.
    """
    with subprocess.Popen(command, env={**os.environ, "PYTHONSAFEPATH": "1"}) as server:
        before = signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        try:
            while True:
                try:
                    return server.wait()
                except KeyboardInterrupt:
                    continue
        finally:
            signal.signal(signal.SIGTERM, before)


def _copy_notebooks(folder: Path) -> None:
    """Copy what is not in *folder* yet; nothing there is overwritten."""
    notebooks, captures = sources()
    wanted = {file: folder / file.name for file in sorted(notebooks.glob("*.ipynb"))}
    wanted |= {file: folder / "captures" / file.name for file in sorted(captures.glob("*.json"))}
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder")
    kept = [(source, target) for source, target in wanted.items() if target.exists()]
    for source, target in wanted.items() - set(kept):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    n = len(kept)
    click.echo(f"{folder}: {len(wanted) - n} files copied, {n} were there already")
    for source, target in kept:
        if source.suffix == ".ipynb" and _cells(source) != _cells(target):
            text = (
                f"kept as it is, though not this version's: {target}; move it away for a new copy"
            )
            click.echo(text, err=True)


def _cells(notebook: Path) -> Any:
    """Source of a notebook without its outputs; None if it is not a notebook."""
    try:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError):
        return None


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


@click.command(epilog="Example: nvmesim ui, or nvmesim ui report.html")
@click.argument("file", metavar="[FILE.html]", required=False, type=click.Path(path_type=Path))
@option("--port", "Port of the page; default: a free one.", type=click.IntRange(1, 65535))
@option("--no-browser", "Print the address and open nothing.", is_flag=True)
def ui(file: Path | None, port: int | None, no_browser: bool) -> int:
    """Design a server in the browser.

    Pick parts, drop captures, move sliders, read the answer, send the report. FILE.html, a file
    that the page wrote, is opened with its designs. The page is served to this machine
    alone (127.0.0.1) at an address with a secret in it, the first line that is printed; nothing is
    sent anywhere. Ctrl-C ends it.
    """
    try:
        from nvmesim.ui.answer import designs_in
        from nvmesim.ui.serve import serve
    except ImportError as error:
        raise InputError(f"ui needs {error.name}: {install_command('ui')}") from None

    opened = [] if file is None else designs_in(file)
    serve(port, browser=not no_browser, say=click.echo, opened=opened)
    return 0
