"""`ns.charts`: every chart can be shown, heard and saved with no network."""

import re

import altair as alt
import polars as pl
import pytest

import nvmesim as ns
from nvmesim.errors import InputError
from nvmesim.show import page
from nvmesim.show.charts import named as charts
from tests.show.report_example import result

SUFFIXES = (".svg", ".png", ".html")
FRAME = pl.DataFrame({
    "drives": [2, 4, 8, 2, 4, 8], "raid": ["raid0"] * 3 + ["raid5"] * 3,
    "iops": [1.2e6, 2.3e6, 3.1e6, 0.8e6, 1.3e6, 1.4e6], "outstanding": [16, 64, 256] * 2,
    "iops_low": [1.19e6, 2.29e6, 3.09e6, 0.79e6, 1.29e6, 1.39e6],
    "iops_high": [1.21e6, 2.31e6, 3.11e6, 0.81e6, 1.31e6, 1.41e6],
    "lat_p99_us": [150.0, 260.0, 900.0, 170.0, 420.0, 2100.0],
    "bound_iops": [3.2e6, 3.2e6, 3.2e6, 1.5e6, 1.5e6, 1.5e6],
    "busy_cpu": [0.2, 0.4, 0.5, 0.2, 0.3, 0.3], "busy_drive": [0.97, 0.9, 0.6, 0.8, 0.6, 0.5],
})  # fmt: skip
SWINGS = pl.DataFrame({
    "input": ["drives.0.profile.read.die", "server.stack.remote"], "basis": ["assumed"] * 2,
    "low": [50.0, 1.0], "high": [70.0, 2.0], "change_low": [0.2, 0.01],
    "change_high": [-0.15, -0.3], "swing": [0.35, 0.31],
})  # fmt: skip
SCENARIO = ns.Scenario(
    name="two disks",
    server={"sockets": [{"cpu": "xeon-gold-6130"}]},
    drives=[{"profile": "sata-ssd", "count": 2}],
    volume={"raid": "raid0"},
    workload={"outstanding": 4},
)


@pytest.fixture(scope="module")
def drawn():
    """Name -> chart."""
    one = result(8)
    frame = FRAME.filter(pl.col("raid") == "raid5")
    sizing = ns.size_cpu(3e6, cpus=["xeon-gold-6130", "xeon-gold-6132"])
    return {
        **{n: getattr(charts, n)(one) for n in (
            "latency_cdf", "utilization", "reliefs", "throughput_curve", "latency_curve", "members",
        )},
        "scaling": charts.scaling(FRAME, "drives", by="raid"),
        "load_curve": charts.load_curve(FRAME, by="raid"),
        "heat": charts.heat(frame, "drives"),
        "tornado": charts.tornado(SWINGS),
        "timeline": charts.timeline(ns.timeline(SCENARIO, requests=3)),
        "cpu_ghz": charts.cpu_ghz(sizing),
        "cpu_load": charts.cpu_load(sizing),
        "all of a result": one.chart(),
    }  # fmt: skip


def test_public_names():
    assert charts.__all__ == sorted(charts.__all__)
    assert all(getattr(charts, name) is not None for name in charts.__all__)


def test_a_notebook_shows_svg_with_words_and_figures(drawn):
    for name, chart in drawn.items():
        shown = chart._repr_mimebundle_()
        assert set(shown) == {"image/svg+xml", "text/plain"}, name
        svg = shown["image/svg+xml"]
        assert re.match(r'<svg role="img" aria-label="[^"]{10,}"', svg), name
        assert not re.findall(r'(?:href|src)="http', svg), name
    with alt.renderers.enable("json"):
        assert "image/svg+xml" not in str(drawn["heat"]._repr_mimebundle_()[0].keys())
    assert "raid5: 800 at 2, 1,300 at 4, 1,400 at 8" in drawn["scaling"].description
    assert "raid0: 150 at 1,200" in drawn["load_curve"].description
    assert "drives: 80 at 2, 60 at 4, 50 at 8" in drawn["heat"].description
    assert "drives.0.profile.read.die at its low +20 %" in drawn["tornado"].description


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_is_saved(drawn, tmp_path, suffix):
    start = {".svg": b"<svg", ".png": b"\x89PNG", ".html": b"<!DOCTYPE html>"}[suffix]
    for number, chart in enumerate(drawn.values()):
        if suffix == ".html" and number > 2 and number != len(drawn) - 1:
            continue  # the same code for all, and a second each
        path = tmp_path / f"{number}{suffix}"
        charts.save(chart, path)
        assert path.read_bytes().startswith(start)
        assert not list(tmp_path.glob(".*"))


def test_charts_save_themselves_with_no_network_and_on_white(drawn, tmp_path):
    drawn["heat"].save(tmp_path / "heat.html")
    text = (tmp_path / "heat.html").read_text("utf-8")
    assert "default-src 'none'" in text
    assert "cdn." not in text.split("<script nonce", 1)[0]
    drawn["heat"].save(tmp_path / "heat.json", format="json")
    assert "layer" in (tmp_path / "heat.json").read_text("utf-8")
    picture = charts.picture(result(4))
    for suffix in SUFFIXES:
        charts.save(picture, tmp_path / f"server{suffix}")
    svg = (tmp_path / "server.svg").read_text("utf-8")
    assert "var(--" not in svg
    assert '<rect width="100%" height="100%" fill="#fff"/>' in svg
    assert (tmp_path / "server.png").read_bytes().startswith(b"\x89PNG")
    assert picture._repr_html_() == picture.svg


@pytest.mark.parametrize(
    ("name", "words"),
    [("chart.pdf", r"\.svg, \.png, \.html"), ("nowhere/chart.svg", "there is no folder")],
)
def test_what_cannot_be_saved(drawn, tmp_path, name, words):
    with pytest.raises(InputError, match=words):
        charts.save(drawn["heat"], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_columns_that_are_not_there_and_bounds_that_are_passed(drawn):
    with pytest.raises(InputError, match=r"no column 'drivse'.*drives"):
        charts.scaling(FRAME, "drivse")
    empty = FRAME.with_columns(pl.lit(None, pl.Float64).alias("lat_p99_us"))
    assert charts.load_curve(empty).description == "no point without an error"
    passed = FRAME.with_columns(pl.lit(1e6).alias("bound_iops"))
    assert "bound raid" not in str(charts.load_curve(passed, by="raid").to_dict()["datasets"])
    assert "bound raid5" in str(charts.load_curve(FRAME, by="raid").to_dict()["datasets"])
    spec = drawn["scaling"].to_dict()
    used = {key for layer in spec["layer"] for key in layer["encoding"]}
    assert {"color", "strokeDash", "shape"} <= used


@pytest.mark.browser
def test_saved_pages_ask_for_nothing(browser, drawn):
    for name in ("scaling", "all of a result"):
        chart = drawn[name]
        seen = browser(page.chart_page(chart, f"{name} <b>"))
        many = len(getattr(chart, "vconcat", [chart]))
        assert len(re.findall(r'<svg [^>]*class="marks"', seen.dom)) == many
        assert seen.dom.count('role="img" aria-label="') >= many
        assert f"{name} &lt;b&gt;" in seen.dom
        assert not seen.console, name
