"""Samples as they are and as others print, cut or damage them: what is read, or why it is not.

The cases are in ``data/cases`` and ``data/expected``: worked out from the text by hand or by other
means than the reader's, never copied from what it returned. A case is a `text` or a `sample`, with
`changes` (each must be in the text), `patterns`, paths of JSON that are `copied`, `set` or `gone`,
cut `upto` or `from` a mark; a key in capitals is what stands there. `each` has rows of one case.
"""

import copy
import functools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvmesim.capture.capture import Latency, Measurement, OpResult
from nvmesim.capture.registry import read_capture
from nvmesim.warning import has
from tests.capture.contract import DATA, counted, read_text, refused, sample, table

KINDS = ("slat", "clat", "lat")
COUNTS = {"iops", "bytes_per_s", "count", "bytes"}
MEASURED = {"read", "write", "mixed"}
FIGURES = {*MEASURED, *(f"{op}_{kind}" for op in MEASURED for kind in KINDS), "label", "load",
           "unknown", "bins_us", "bin_count", "cpu_pct", "disk_util_pct", "warnings",
           "version"}  # fmt: skip
JOINED = ("changes", "patterns")
GIVEN = {*JOINED, "text", "sample", "file", "name", "copied", "set", "gone", "from", "upto"}
FOUND = {"refused", "said", "only", "unsaid", "counted", "rows", "skipped", "version", "format",
         "same", "requests", "labels", "first", "measurements"}  # fmt: skip


def cases() -> Iterator[Any]:
    for path in sorted((DATA / "cases").glob("*.toml")):
        for name, case in tomllib.loads(path.read_text("utf-8")).items():
            rows = case.pop("each", [{}])
            for number, row in enumerate(rows, 1):
                joined = {key: [*case.get(key, ()), *row.get(key, ())] for key in JOINED}
                values = {**case.get("set", {}), **row.get("set", {})}
                which = f" {number}" if len(rows) > 1 else ""
                whole = {**case, **row, **joined, "set": values}
                keys = {key for key in whole if not key.isupper()}
                assert keys <= GIVEN | FOUND, keys - GIVEN - FOUND
                assert keys & FOUND, name
                yield pytest.param(whole, id=f"{path.stem}: {name}{which}")
    for path in sorted((DATA / "expected").glob("*.toml")):
        for name, figures in tomllib.loads(path.read_text("utf-8")).items():
            yield pytest.param({"file": name, "measurements": figures}, id=name)


def changed(case: dict[str, Any]) -> str:
    """The text of a case."""
    changes = [tuple(change) for change in case.get("changes", ())]
    text = case.get("text") or sample(case["sample"], *changes)
    for pattern, new in case.get("patterns", ()):
        text, n = re.subn(pattern, new, text)
        assert n, pattern
    for key in filter(str.isupper, case):
        assert key in text
        text = text.replace(key, case[key])
    if case["set"] or case.keys() & {"copied", "gone"}:
        text = json.dumps(changed_json(json.loads(text), case))
    text = text[text.index(case.get("from", "")) :]
    return text[: text.index(case["upto"])] if "upto" in case else text


def changed_json(found: Any, case: dict[str, Any]) -> Any:
    """*found* with copies and other values at paths such as ``jobs/0/read/iops``, or without."""

    def at(path: str) -> tuple[Any, str | int]:
        *outer, last = (int(key) if key.isdigit() else key for key in path.split("/"))
        return functools.reduce(lambda inner, key: inner[key], outer, found), last

    for path, source in case.get("copied", {}).items():
        (inner, last), (other, key) = at(path), at(source)
        if isinstance(inner, list):
            inner.append(None)
        inner[last] = copy.deepcopy(other[key])
    for path, value in case["set"].items():
        inner, last = at(path)
        inner[last] = value
    for path in case.get("gone", ()):
        inner, last = at(path)
        del inner[last]
    return found


def check_op(result: OpResult, expected: dict[str, Any], where: str) -> None:
    latency = result.lat or result.clat
    assert (latency is None) == expected.get("unknown", latency is None), where
    for key in COUNTS & set(expected):
        assert getattr(result, key) == pytest.approx(expected[key]), f"{where} {key}"
    check_latency(latency, {k: v for k, v in expected.items() if k not in COUNTS}, where)


def check_latency(latency: Latency | None, expected: dict[str, Any], where: str) -> None:
    for key, value in expected.items():
        if key == "samples":
            assert latency.count == value, where
        elif key == "bins":
            assert (0 if latency.bin_s is None else len(latency.bin_s)) == value, where
        elif key[0] == "p":
            found = latency.percentiles_s[float(key[1:])]
            assert 1e6 * found == pytest.approx(value), f"{where} {key}"
        elif value is False:
            assert getattr(latency, f"{key}_s") is None, f"{where} {key}"
        elif key != "unknown":
            assert 1e6 * getattr(latency, f"{key}_s") == pytest.approx(value), f"{where} {key}"


def check_measurement(m: Measurement, expected: dict[str, Any]) -> None:
    assert expected.keys() <= FIGURES, expected.keys() - FIGURES
    ops = {**m.ops, **({"mixed": m.mixed} if m.mixed else {})}
    listed = MEASURED & set(expected)
    assert not listed or listed == set(ops)
    for op in listed:
        check_op(ops[op], expected[op], op)
        known = {kind for kind in KINDS if f"{op}_{kind}" in expected}
        assert not known or known == {kind for kind in KINDS if getattr(ops[op], kind)}
        for kind in known:
            check_latency(getattr(ops[op], kind), expected[f"{op}_{kind}"], f"{op} {kind}")
    assert m.label == expected.get("label", m.label)
    for key, value in expected.get("load", {}).items():
        wanted = value if isinstance(value, str) else pytest.approx(value)
        assert getattr(m.conditions, key) == wanted, key
    states = {**vars(m.conditions), "cpu": m.cpu}
    assert [key for key in expected.get("unknown", ()) if states[key] is not None] == []
    if "bins_us" in expected:
        (result,) = ops.values()
        latency = result.lat or result.clat
        assert latency.bin_s.tolist() == pytest.approx([t * 1e-6 for t in expected["bins_us"]])
        assert latency.bin_count.tolist() == expected["bin_count"]
    if "cpu_pct" in expected:
        assert m.cpu.total_pct == pytest.approx(expected["cpu_pct"])
    if "disk_util_pct" in expected:
        assert m.disk_util_pct == pytest.approx(expected["disk_util_pct"])
    assert len(m.warnings) == expected.get("warnings", len(m.warnings))


@pytest.mark.parametrize("case", list(cases()))
def test_what_is_read_or_why_it_is_not(case: dict[str, Any], tmp_path: Path) -> None:
    """`said` are codes or words of warnings, `only` are all, `unsaid` codes, `same` is a sample."""
    name = case.get("name", "capture.txt")
    if "refused" in case:
        assert case["refused"] in refused(changed(case), tmp_path, name)
        return
    is_file = "file" in case
    capture = (
        read_capture(DATA / case["file"]) if is_file else read_text(changed(case), tmp_path, name)
    )
    said = [*capture.warnings, *(w for m in capture.measurements for w in m.warnings)]
    for words in case.get("said", ()):
        assert has(said, words) or any(words in warning for warning in said), said
    assert not has(said, *case.get("unsaid", ())), said
    assert said == case.get("only", said)
    for code, number in case.get("counted", {}).items():
        assert counted(said, code) == number
    for key in ("rows", "skipped", "version", "format"):
        assert getattr(capture, key) == case.get(key, getattr(capture, key)), key
    if "same" in case:
        assert capture.measurements == read_capture(DATA / case["same"]).measurements
    if "requests" in case:
        assert table(capture).select(*case["requests"]).to_dict(as_series=False) == case["requests"]
    found = capture.measurements
    assert [m.label for m in found] == case.get("labels", [m.label for m in found])
    if "first" in case:
        check_measurement(found[0], case["first"])
    if "measurements" in case:
        assert capture.version == case["measurements"][0].get("version", capture.version)
        for m, expected in zip(found, case["measurements"], strict=True):
            check_measurement(m, expected)


def test_iometer_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    plain = sample("iometer/results.csv")
    lines = plain.split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("'Target Type"))
    for i in range(start, len(lines)):
        if not lines[i].startswith("20"):
            lines[i] = lines[i].replace(",", ";").replace(".", ",")
    found, same = (read_text(text, tmp_path).measurements for text in ("\n".join(lines), plain))
    assert [m.ops for m in found] == [m.ops for m in same]


def test_json_of_iostat_with_things_that_cannot_be(tmp_path: Path) -> None:
    table = json.loads(sample("iostat/report.json"))
    reports = table["sysstat"]["hosts"][0]["statistics"]
    plain = copy.deepcopy(reports)
    reports[1]["disk"] += [{"r/s": 1}, {"disk_device": "x"}, "sda"]
    reports[1]["avg-cpu"] = []
    reports.append("a word")
    capture = read_text(json.dumps(table), tmp_path)
    assert capture.skipped == 4
    assert "4 lines skipped" in " ".join(capture.warnings)
    for one in plain:
        one["avg-cpu"] |= {"user": 80.0, "system": 80.0}
        for disk in one["disk"]:
            disk["r_await"] = 1e13
    reports[:] = plain
    (m,) = read_text(json.dumps(table), tmp_path).measurements
    assert m.cpu is None
    assert m.ops["read"].clat is None


def test_csv_columns_are_found_by_their_header(tmp_path: Path) -> None:
    lines = sample("tracepoints/bpftrace.csv.gz").split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("ts_ns,"))
    rows = [x.split(",") for x in lines[start:] if x.strip()]
    order = ["ts_ns", "ev", "sector", "nr_sector", "dev_major", "dev_minor", "rwbs"]
    text = "".join(",".join(r[rows[0].index(c)] for c in order) + "\n" for r in rows)
    first = read_capture(DATA / "tracepoints" / "bpftrace.csv.gz").requests.collect()
    assert read_text(text, tmp_path).requests.collect().equals(first)


def test_biosnoop_of_every_version(tmp_path: Path) -> None:
    """Without the time in the queue, with another column for it, with commas for points."""
    text = sample("biosnoop/bcc.txt")
    rows = [line.rsplit(maxsplit=5) for line in text.splitlines()[1:]]
    rows = [row for row in rows if row[1] != "F"]  # flushes are no requests
    plain = read_text(text, tmp_path)
    frame = plain.requests.collect().sort("complete_ns")
    assert frame["offset"].to_list() == [512 * int(row[2]) for row in rows]
    assert frame["bytes"].to_list() == [int(row[3]) for row in rows]
    assert frame["latency_ns"].to_list() == [round(1e6 * float(row[5])) for row in rows]
    assert (frame["op"] == "write").to_list() == [row[1] == "W" for row in rows]
    pattern = re.sub(r"\S+( +\S+\n)", r"RANDOM\1", text.replace("QUE(ms)", "PATTERN"))
    pattern = pattern.replace("RANDOM", "PATTERN", 1)
    without = re.sub(r"\S+ +(\S+)\n", r"\1\n", text)
    for other in (pattern, without, re.sub(r"(\d)\.(\d)", r"\1,\2", text)):
        capture = read_text(other, tmp_path)
        assert (capture.rows, capture.skipped) == (60, 0)
        assert capture.requests.collect().equals(plain.requests.collect())
