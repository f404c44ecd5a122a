"""Captures inside what another program wrote around them: read as if they stood alone."""

import base64
import json
import quopri
from collections.abc import Callable
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.capture.unrecognised import MAIL, plain_mail
from nvmesim.warning import Warning
from tests.capture.contract import DATA, read_text

JSON = DATA / "fio-json" / "randread_4k_qd4_nj3_group.json"
FILES = [
    DATA / "fio-text" / "randread_4k_qd32.normal.txt",
    DATA / "iostat" / "text.txt",
    DATA / "diskspd-text" / "two_targets.txt",
    JSON,
]
HEADERS = "Received: from a by b\nFrom: A <a@b.example>\nSubject: fio\nMessage-ID: <1@b.example>\n"


def lines_with(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{prefix}{line}\n" for line in text.removesuffix("\n").split("\n"))


def encoded(name: str, encode: Callable[[bytes], bytes]) -> Callable[[str], str]:
    head = (
        f"{HEADERS}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {name}\n\n"
    )
    return lambda text: head + encode(text.encode()).decode()


WRAPPERS: dict[str, Callable[[str], str]] = {
    "cri": lines_with("2024-05-01T10:00:00.123456789Z stdout F "),
    "cri with an offset": lines_with("2024-05-01T10:00:00.123456789+02:00 stdout F "),
    "kubectl --prefix": lines_with("[pod/fio-x7k2p/fio] "),
    "kubectl --timestamps": lines_with("2024-05-01T10:00:00.123456789Z "),
    "syslog": lines_with("Mar  5 10:00:00 host1 bench[123]: "),
    "compose": lines_with("fio_1  | "),
}
MAILS: dict[str, Callable[[str], str]] = {
    "quoted once": lines_with("> "),
    "quoted twice": lines_with("> > "),
    "quoted thrice": lines_with(">> > "),
    "quoted without blanks": lines_with(">"),
    "below an answer": lambda text: "On Monday A wrote:\n" + lines_with("> ")(text) + "\nThanks.\n",
    "no-break spaces": lambda text: text.replace("  ", " \u00a0"),
    "headers": lambda text: f"{HEADERS}\n{text}",
    "quoted-printable": encoded("quoted-printable", quopri.encodestring),
    "base64": encoded("base64", base64.encodebytes),
    "signature": lambda text: f"{text}\n-- \nA. B.\nhttp://b.example\n",
    "footer": lambda text: (
        f"{text}\n{'_' * 47}\nLinux-nvme mailing list\nLinux-nvme@lists.example\n"
    ),
}


INSIDE = [(name, path) for name in {**WRAPPERS, **MAILS} for path in FILES]
INSIDE.remove(("no-break spaces", JSON))  # in JSON they are no blanks


@pytest.mark.parametrize(("name", "path"), INSIDE)
def test_what_is_inside_is_read(name: str, path: Path, tmp_path: Path) -> None:
    wrapped = tmp_path / path.name
    wrapped.write_text({**WRAPPERS, **MAILS}[name](path.read_text()), encoding="utf-8")
    plain, inside = read_capture(path), read_capture(wrapped)
    assert inside.format == plain.format
    assert inside.measurements == plain.measurements
    assert inside.file == wrapped
    assert read_captures(wrapped).files[0].measurements == plain.measurements
    if name in MAILS and path != JSON:
        assert [w.code for w in inside.warnings if isinstance(w, Warning)].count(MAIL) == 1


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


def test_nested_json_is_read(tmp_path: Path) -> None:
    table = json.loads(JSON.read_text())
    path = tmp_path / "results.json"
    later = {**table, "timestamp": table["timestamp"] + 1000}
    path.write_text(json.dumps([{"host": "a", "fio": [table]}, {"host": "b", "fio": {"x": later}}]))
    first, second = read_capture(path).measurements
    (plain,) = read_capture(JSON).measurements
    assert first.ops == second.ops == plain.ops
    assert (first.label, second.label) == (f"{plain.label} (run 1)", f"{plain.label} (run 2)")


@pytest.mark.parametrize(
    "wrap",
    [
        lines_with("    "),
        lambda text: f"<html><body><pre>{text.replace('>', '&gt;')}</pre></body></html>\n",
        lambda text: f"\x1b[0;32m{text}\x1b[0m\n",
    ],
    ids=["indented", "web page", "colours"],
)
def test_reports_of_fio_that_were_formatted(wrap: Callable[[str], str], tmp_path: Path) -> None:
    """Also the banner, whose lines say depth and engine, must be found."""
    inside = read_text(wrap(FILES[0].read_text()), tmp_path)
    plain = read_capture(FILES[0])
    assert inside.version == plain.version
    assert inside.measurements == plain.measurements
