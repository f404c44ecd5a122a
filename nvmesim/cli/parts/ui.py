"""`nvmesim ui`: the app in a browser, on this machine alone."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Example: nvmesim ui, or nvmesim ui report.html")
@click.argument("file", metavar="[FILE.html]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the page; default: a free one."
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
def ui(file: Path | None, port: int | None, no_browser: bool) -> int:
    """Design a server in the browser.

    Pick parts, drop captures, move sliders, read the answer, send the report. FILE.html, a file
    that the page wrote, is opened with its designs. The page is served to this machine
    alone (127.0.0.1) at an address with a secret in it, the first line that is printed; nothing is
    sent anywhere. Ctrl-C ends it.
    """
    from nvmesim.errors import InputError
    from nvmesim.version import install_command

    try:
        from nvmesim.ui.serve import serve
        from nvmesim.ui.shared import designs_in
    except ImportError as error:
        raise InputError(f"ui needs {error.name}: {install_command('ui')}") from None

    opened = [] if file is None else designs_in(file)
    serve(port, browser=not no_browser, say=click.echo, opened=opened)
    return 0
