"""`nvmesim ui`: the app in a browser, on this machine alone."""

from __future__ import annotations

import click


@click.command(epilog="Example: nvmesim ui")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the page; default: a free one."
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
def ui(port: int | None, no_browser: bool) -> int:
    """Design a server in the browser.

    Pick parts, drop captures, move sliders, read the answer, send the report. The page is served to
    this machine alone (127.0.0.1) at an address with a secret in it, the first line that is
    printed; nothing is sent anywhere. Ctrl-C ends it.
    """
    from nvmesim.errors import InputError
    from nvmesim.version import install_command

    try:
        from nvmesim.ui.serve import serve
    except ImportError as error:
        raise InputError(f"ui needs {error.name}: {install_command('ui')}") from None

    serve(port, browser=not no_browser, say=click.echo)
    return 0
