"""The app on this machine alone: a free port, a secret in its address, the browser."""

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence

import uvicorn

from nvmesim.errors import InputError

HOST = "127.0.0.1"
LAST_S = 5
"""Seconds that an answer under way has after Ctrl-C, a PDF that is printed for one."""


def listening(port: int | None) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; InputError if *port* is in use or not allowed."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port or 0))
    except OSError as error:
        found.close()
        raise InputError(
            f"port {port} cannot be used ({error.strerror}); name another with --port, or leave it "
            "out for a free one"
        ) from None
    return found


def serve(
    port: int | None, *, browser: bool, say: Callable[[str], None], opened: Sequence[str] = ()
) -> None:
    """Answer until Ctrl-C; *say* is given the address first. *opened* are designs to begin with."""
    ear = listening(port)
    ear.listen(64)  # who opens the address at once is kept waiting, not refused
    number, token = ear.getsockname()[1], secrets.token_urlsafe(24)
    address = f"http://{HOST}:{number}/{token}/" + ("compare" if len(opened) > 1 else "")
    say(address)
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    # Altair and the catalog take a second to import, while the browser starts.
    from nvmesim.ui.app import create_app

    config = uvicorn.Config(
        create_app(token, number, opened), log_level="warning", access_log=False,
        server_header=False, date_header=False, ws="none", proxy_headers=False,
        timeout_graceful_shutdown=LAST_S,
    )  # fmt: skip
    with ear:
        uvicorn.Server(config).run(sockets=[ear])
