"""Answers that leave the app: an HTML file that holds its designs, and a PDF of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nvmesim.errors import InputError
from nvmesim.show.page import script_json

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
PDF_S: Final = 60
MOST_BYTES: Final = 64 << 20
_DESIGNS: Final = re.compile(r'<script type="application/json" id="designs">(.*?)</script>', re.S)


def with_designs(page: str, texts: Sequence[str]) -> str:
    """Return the HTML *page* with the TOML of the designs that it is about."""
    data = f'<script type="application/json" id="designs">{script_json(list(texts))}</script>'
    return page.replace("</main>", f"{data}\n</main>", 1)


def on_one_page(page: str) -> str:
    """Return the HTML *page* such that it is printed on one sheet."""
    style = "<style>@page{size:A4;margin:9mm}@media print{body{zoom:.6}nav{display:none}}</style>"
    return page.replace("</head>", f"{style}</head>", 1)


def designs_in(file: Path) -> list[str]:
    """Return the TOML of the designs in an HTML file of the app; InputError if it has none."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: is larger than {MOST_BYTES >> 20} MiB")
        text = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    found = _DESIGNS.search(text)
    try:
        texts: Any = json.loads(found[1]) if found else None
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise InputError(f"{file}: holds no design; give a file that the page's Share wrote")
    return texts


def pdf_of(page: Path) -> Path:
    """Print the HTML file *page* beside it with a headless browser; InputError without one."""
    program = next((p for name in BROWSERS if (p := shutil.which(name))), None)
    if program is None:
        raise InputError("no headless browser is installed; open the HTML file and print it")
    made = page.with_suffix(".pdf")
    flags = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={made}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # which root has none of
    try:
        subprocess.run(
            [os.path.abspath(program), *flags, page.as_uri()], cwd=page.parent, timeout=PDF_S,
            check=True, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"the browser made no PDF ({type(error).__name__})") from None
    if not made.is_file():
        raise InputError("the browser made no PDF; open the HTML file and print it")
    return made
