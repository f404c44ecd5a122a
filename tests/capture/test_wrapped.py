"""Captures inside what another program wrote around them: read as if they stood alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture, read_captures

DATA = Path(__file__).parent / "data"
TEXT = DATA / "fio-text" / "randread_4k_qd32.normal.txt"
JSON = DATA / "fio-json" / "randread_4k_qd4_nj3_group.json"
IOSTAT = DATA / "iostat" / "text.txt"


def lines_with(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{prefix}{line}\n" for line in text.removesuffix("\n").split("\n"))


def docker(text: str) -> str:
    entries = ({"log": f"{line}\n", "stream": "stdout"} for line in text.split("\n"))
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


WRAPPERS: dict[str, Callable[[str], str]] = {
    "cri": lines_with("2024-05-01T10:00:00.123456789Z stdout F "),
    "cri with an offset": lines_with("2024-05-01T10:00:00.123456789+02:00 stdout F "),
    "kubectl --prefix": lines_with("[pod/fio-x7k2p/fio] "),
    "kubectl --timestamps": lines_with("2024-05-01T10:00:00.123456789Z "),
    "syslog": lines_with("Mar  5 10:00:00 host1 bench[123]: "),
    "compose": lines_with("fio_1  | "),
    "mail": lines_with("> > "),
    "docker": docker,
    "ansible stdout": lambda text: "ok: [node1] => " + json.dumps({"rc": 0, "stdout": text}),
    "ansible lines": lambda text: (
        'ok: [node1] => {\n    "msg": [\n'
        + ",\n".join(f"        {json.dumps(line)}" for line in text.split("\n"))
        + "\n    ]\n}\n"
    ),
}


@pytest.mark.parametrize("path", [TEXT, JSON, IOSTAT], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", WRAPPERS)
def test_what_is_inside_is_read(name: str, path: Path, tmp_path: Path) -> None:
    wrapped = tmp_path / path.name
    wrapped.write_text(WRAPPERS[name](path.read_text()), encoding="utf-8")
    plain, inside = read_capture(path), read_capture(wrapped)
    assert inside.format == plain.format
    assert inside.measurements == plain.measurements
    assert inside.file == wrapped
    assert read_captures(wrapped).files[0].measurements == plain.measurements


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
    path = tmp_path / "report.txt"
    path.write_text(wrap(TEXT.read_text()), encoding="utf-8")
    plain, inside = read_capture(TEXT), read_capture(path)
    assert inside.version == plain.version
    assert inside.measurements == plain.measurements
