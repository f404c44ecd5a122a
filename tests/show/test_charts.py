"""Charts: valid, with units, with their data inside, and no larger than the eye needs."""

import dataclasses
import itertools
import json
import math
import subprocess
import sys

import polars as pl
import pytest

from nvmesim.show.charts import result as charts
from nvmesim.show.charts.base import FEWEST_BEYOND, log_ticks
from nvmesim.show.charts.result import timeline
from nvmesim.show.charts.sweep import heat, scaling
from nvmesim.show.palette import LOADS
from nvmesim.study.choose import choose
from nvmesim.study.timeline import Timeline
from tests.show.report_example import result

LARGEST = 120_000
"""Bytes of one chart's specification: data included, far below the charts' own code."""


@pytest.fixture(scope="module")
def example():
    return result(24)


def titles(spec):
    """Every axis title in *spec*."""
    if isinstance(spec, dict):
        if "field" in spec and isinstance(spec.get("title"), str):
            yield spec["title"]
        for value in spec.values():
            yield from titles(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from titles(value)


def rows(spec):
    """Every data row in *spec*."""
    for data in spec["datasets"].values():
        yield from data


def test_each_chart_is_valid_small_with_its_data_and_bands_around_curves(example):
    specs = [drawn.to_dict() for drawn in charts.all_charts(example).values()]
    assert len(specs) == len(example.chart().to_dict()["vconcat"]) == 6
    for spec in specs:
        text = json.dumps(spec)
        assert len(text) < LARGEST
        assert '"url"' not in text
    units = {"kIOPS", "latency, µs (log)", "commands of each, kIOPS", "busy"}
    assert units <= {title for spec in specs for title in titles(spec)}
    # An area with an order of its own is drawn as one sliver a point: as nothing.
    for drawn in charts.all_charts(example).values():
        for layer in drawn.to_dict().get("layer", []):
            assert layer["mark"].get("type") != "area" or "order" not in layer["encoding"]
    spec = charts.latency_curve(example).to_dict()
    assert spec["layer"][0]["mark"]["filled"] is True
    band = spec["datasets"][spec["layer"][0]["data"]["name"]]
    ends = {(r["which"], r["n"]): r["us"] for r in band}
    for point in example.curve:
        assert (
            ends["mean", -point.outstanding] < point.mean_s * 1e6 < ends["mean", point.outstanding]
        )


def test_the_cdf_ends_where_samples_are_too_few_and_its_dots_lie_where_the_table_says(example):
    found = list(rows(charts.latency_cdf(example).to_dict()))
    n = int(example.total.latency.bin_count.sum())
    most = max(row["nines"] for row in found if "which" not in row)
    assert 4 < most <= math.log10(n / FEWEST_BEYOND) + 1e-3
    dots = {(r["op"], r["which"]): r for r in found if "which" in r}
    p99 = example.read.latency.percentiles[99.0]
    assert dots["read", "p99"]["us"] == pytest.approx(p99 * 1e6, rel=1e-3)
    assert dots["read", "p99"]["nines"] == pytest.approx(2.0)
    assert ("read", "p99.99") not in dots


def test_stations_and_bounds_that_are_equal_share_one_mark(example):
    found = {r["station"]: r for r in rows(charts.utilization(example).to_dict()) if "station" in r}
    assert "drive dies × 24" in found
    assert len(found) == 11
    busiest = max(s.utilization for s in example.stations if s.name.endswith(" dies"))
    assert found["drive dies × 24"]["busy"] == pytest.approx(busiest, abs=1e-3)
    bounds = {f"drive{i} dies": 1e6 * (1 + i / 1000) for i in range(24)} | {"upi 1>0": 2e6}
    stop = dataclasses.replace(example.bottleneck, bounds=bounds)
    drawn = charts.throughput_curve(dataclasses.replace(example, bottleneck=stop))
    found = list(rows(drawn.to_dict()))
    assert sum(str(r.get("text", "")).startswith("bound:") for r in found) <= 2


def test_scaling_heat_map_and_timeline_have_what_they_show():
    rates = [result(n).total.iops for n in (2, 4, 8)]
    columns = {"iops": [i.value for i in rates], "iops_low": [i.low for i in rates],
               "iops_high": [i.high for i in rates]}  # fmt: skip
    spec = scaling(pl.DataFrame({"drives": [2, 4, 8], **columns})).to_dict()
    ideal = {r["n"]: r["kiops"] for r in rows(spec) if r.get("line", "").startswith("n × one")}
    assert ideal[8] == pytest.approx(4 * ideal[2])
    columns = {"iops": [1e6, 2e6], "busy_drive": [0.2, 0.9], "busy_cpu": [0.1, 0.3]}
    found = list(rows(heat(pl.DataFrame({"drives": [2, 4], **columns}), "drives").to_dict()))
    assert {(r["case"], r["station"]) for r in found} == {
        (n, name) for n in "24" for name in ("drives", "CPU")
    }
    assert {"station", "busy", "text"} <= found[0].keys()
    step = {"request": 3, "command": 1, "station": "drive0 die5", "kind": "drive"}
    times = {"arrives_us": 1.0, "waits_us": 1.0, "served_us": 58.0, "leaves_us": 60.0}
    drawn = timeline(Timeline("one", pl.DataFrame([{**step, **times}])))
    assert drawn.description == "Steps of 1 request in 1 lane, over 59 us."
    row = next(rows(drawn.to_dict()))
    assert row["lane"] == "request 3, command 1"
    assert row["waits"] == 1.0
    assert row["served"] == 58.0


def test_ticks_of_no_value_and_of_many_decades():
    assert log_ticks([]) == [1.0]
    assert len(log_ticks([1.0, 1e7])) == 8


def grey(colour):
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_loads_keep_their_order_in_grey():
    shades = [grey(colour) for *_, colour in LOADS]
    assert shades == sorted(shades, reverse=True)
    assert min(a - b for a, b in itertools.pairwise(shades)) > 0.04


def test_altair_is_imported_without_the_grammar_of_iris():
    """Where JupyterLab brought it: compiling it takes seconds, and no chart needs it."""
    pytest.importorskip("rfc3987_syntax")
    code = (
        "import sys, nvmesim.show.charts.base; print('rfc3987_syntax' in sys.modules);"
        "from jsonschema import FormatChecker; check = FormatChecker(['iri']).conforms;"
        "print(check('http://example/', 'iri'), check('no iri', 'iri'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_the_code_of_the_charts_is_made_once(tmp_path, monkeypatch):
    import vl_convert

    from nvmesim.show import charts

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first = charts.bundle.__wrapped__()
    assert "</script" not in first

    def never(*_):
        raise AssertionError("made again")

    monkeypatch.setattr(vl_convert, "javascript_bundle", never)
    assert charts.bundle.__wrapped__() == first


def test_rejected_candidates_are_never_on_the_front():
    found = choose({
        "scenario": {
            "server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
            "drives": [{"profile": "intel-p4610-1.6tb", "count": 2}],
            "volume": [{"raid": "raid0"}], "workload": [{"threads": 4, "outstanding": 8}],
        },
        "candidates": {"drives.0.count": [2, 3, 4]},
        "constraints": {"iops": "300k/s", "capacity": "4 TB"},
        "objective": {"minimize": "drives"},
    }, workers=1, everything=True)  # fmt: skip
    drawn = found.chart().to_dict()
    words = drawn["description"]
    assert words.startswith("kIOPS against drives: chosen: 3 drives")
    assert "2 drives" not in words
