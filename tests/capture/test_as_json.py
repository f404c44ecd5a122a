"""`nvmesim trace --json`: the keys that scripts rely on."""

import json
from pathlib import Path

import pytest

from nvmesim.capture.as_json import describe_capture
from nvmesim.capture.registry import read_capture

DATA = Path(__file__).parent / "data"


def described(name: str) -> dict:
    table = describe_capture(read_capture(DATA / name))
    return json.loads(json.dumps(table, allow_nan=False))


def test_keys() -> None:
    table = described("fio-json/randread_4k_qd4_nj3_group.json")
    first = ["file", "format", "version", "conditions", "rows", "skipped", "ops", "warnings"]
    assert list(table)[:8] == first
    assert (table["format"], table["version"], table["rows"]) == ("fio-json", "3.33", 1)
    assert table["conditions"]["outstanding"] == 12
    assert set(table["ops"]) == {"read"}
    read = table["ops"]["read"]
    assert (read["count"], read["bytes"]) == (184285, 754831360)
    assert read["latency_s"]["kind"] == "clat"
    assert read["latency_s"]["mean"] == pytest.approx(189.38e-6, rel=1e-4)
    assert read["latency_s"]["p50"] < read["latency_s"]["p99"] < read["latency_s"]["max"]
    assert read["lat_s"]["p50"] is None
    assert any(text.startswith("short run") for text in table["warnings"])


def test_latency_is_of_the_kind_with_a_distribution() -> None:
    read = described("fio-json/randread_4k_qd4_latpct_only.json.gz")["ops"]["read"]
    assert read["latency_s"]["kind"] == "lat"
    assert read["latency_s"]["p99"] > 0
    assert read["clat_s"]["p99"] is None


def test_several_measurements_share_only_what_is_equal() -> None:
    table = described("fio-json/jobfile_global_stonewall.json.gz")
    assert table["conditions"]["iodepth"] is None
    assert table["conditions"]["engine"] == "libaio"
    assert [m["conditions"]["iodepth"] for m in table["measurements"]] == [4, 16, 8]
    assert table["ops"]["read"]["count"] == sum(
        m["ops"]["read"]["count"] for m in table["measurements"] if "read" in m["ops"]
    )
    assert table["ops"]["read"]["latency_s"]["p99"] is None
    assert table["warnings"][0].startswith("warm-read: ")


def test_points() -> None:
    table = described("points/datasheet.csv")
    assert table["rows"] == 5
    assert table["ops"]["read"]["count"] == 0
    assert table["measurements"][0]["ops"]["read"]["latency_s"]["p99"] == pytest.approx(110e-6)
    assert table["measurements"][4]["cpu"]["total_pct"] == 310.5
