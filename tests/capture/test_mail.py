"""Captures that came by mail: what mail programs did to them is undone, and said."""

from __future__ import annotations

import base64
import quopri
from collections.abc import Callable
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.capture.unwrap import MAIL, plain_mail
from nvmesim.warning import Warning

DATA = Path(__file__).parent / "data"
FILES = [
    DATA / "fio-text" / "randread_4k_qd32.normal.txt",
    DATA / "iostat" / "text.txt",
    DATA / "diskspd-text" / "two_targets.txt",
]
HEADERS = "Received: from a by b\nFrom: A <a@b.example>\nSubject: fio\nMessage-ID: <1@b.example>\n"


def quoted(mark: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{mark}{line}\n" for line in text.split("\n"))


def encoded(name: str, encode: Callable[[bytes], bytes]) -> Callable[[str], str]:
    head = (
        f"{HEADERS}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {name}\n\n"
    )
    return lambda text: head + encode(text.encode()).decode()


MAILS: dict[str, Callable[[str], str]] = {
    "quoted once": quoted("> "),
    "quoted thrice": quoted(">> > "),
    "quoted without blanks": quoted(">"),
    "below an answer": lambda text: "On Monday A wrote:\n" + quoted("> ")(text) + "\nThanks.\n",
    "no-break spaces": lambda text: text.replace("  ", " \u00a0"),
    "headers": lambda text: f"{HEADERS}\n{text}",
    "quoted-printable": encoded("quoted-printable", quopri.encodestring),
    "base64": encoded("base64", base64.encodebytes),
    "signature": lambda text: f"{text}\n-- \nA. B.\nhttp://b.example\n",
    "footer": lambda text: (
        f"{text}\n{'_' * 47}\nLinux-nvme mailing list\nLinux-nvme@lists.example\n"
    ),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", MAILS)
def test_a_mailed_capture_is_read_as_it_was(name: str, path: Path, tmp_path: Path) -> None:
    mailed = tmp_path / path.name
    mailed.write_text(MAILS[name](path.read_text()), encoding="utf-8")
    plain, inside = read_capture(path), read_capture(mailed)
    assert inside.format == plain.format
    assert inside.measurements == plain.measurements
    codes = [w.code for w in inside.warnings if isinstance(w, Warning)]
    assert codes.count(MAIL) == 1


@pytest.mark.parametrize(
    "text",
    [
        "1\u00a0234 | 5\u00a0678\n",  # thousands of a French table
        "  IO depths    : 1=0.1%, 32=0.0%,\n>=64=99.9%\n",
        '{"a": "> b"}\n',
        "a > b\n> c\n",
    ],
)
def test_what_no_mail_program_did_stays(text: str) -> None:
    assert plain_mail(text) == (text, None)
