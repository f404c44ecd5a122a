"""DiskSpd XML and text: figures, versions, encodings, damage."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture import composed_diskspd as composed

DATA = Path(__file__).parent / "data"
DEEP = "<a>" * 5000 + "</a>" * 5000
TIME = re.compile("<TestTimeSeconds>.*?</TestTimeSeconds>")


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.fixture(params=["xml", "text"])
def result(request) -> str:
    return composed.xml() if request.param == "xml" else composed.text()


def test_figures(result: str, tmp_path: Path) -> None:
    capture = read_capture(written(tmp_path / "t", result))
    total, *targets = capture.measurements
    reads, writes = composed.merged(composed.threads())
    c = total.conditions
    assert (c.read_fraction, c.access, c.block_size) == (0.7, "random", 4096)
    assert (c.jobs, c.iodepth, c.outstanding, c.targets) == (2, 8, 16, 2)
    assert (c.duration_s, c.ramp_s, c.cpus, c.direct, c.engine) == (3.0, 1.0, 4, True, "iocp")
    for op, values in (("read", reads), ("write", writes)):
        found = total.ops[op]
        assert found.count == len(values)
        assert found.iops == pytest.approx(len(values) / 3)
        assert found.bytes == len(values) * 4096
        assert found.lat.mean_s == pytest.approx(values.mean() / 1e3, abs=1e-6)
        assert found.lat.stddev_s == pytest.approx(values.std() / 1e3, abs=1e-6)
        assert (found.lat.min_s, found.lat.max_s) == pytest.approx(
            (values[0] / 1e3, values[-1] / 1e3)
        )
        for percent in (25.0, 50.0, 99.0, 99.9):
            expected = composed.rank(values, percent) / 1e3
            assert found.lat.percentiles_s[percent] == pytest.approx(expected)
        assert found.clat is None
    assert (total.cpu.total_pct, total.cpu.system_pct, total.cpu.scope) == (146.0, 142.0, "host")
    assert [m.conditions.jobs for m in targets] == [1, 1]
    for measurement, thread in zip(targets, composed.threads(), strict=True):
        assert measurement.label.endswith(thread.path)
        assert measurement.ops["read"].lat.mean_s == pytest.approx(
            thread.reads.mean() / 1e3, abs=1e-6
        )
        assert measurement.cpu is None


def test_totals_come_from_the_overall_table_not_the_first(tmp_path: Path) -> None:
    total, first, _ = read_capture(written(tmp_path / "t", composed.text())).measurements
    assert total.ops["read"].lat.max_s > first.ops["read"].lat.max_s
    assert first.ops["read"].lat.percentiles_s


def test_powershell_and_decimal_commas(result: str, tmp_path: Path) -> None:
    plain = read_capture(written(tmp_path / "t", result))
    comma = re.sub(r"(?<=[\d])\.(?=\d\d)", ",", result).replace("2,2,0", "2.2.0")
    for text, encoding in ((result.replace("\n", "\r\n"), "utf-16"), (comma, "utf-8-sig")):
        other = read_capture(written(tmp_path / "u", text, encoding))
        assert other.measurements == plain.measurements


def test_two_results_in_one_file_and_a_cut_third(tmp_path: Path) -> None:
    text = composed.xml(1) + composed.xml(2) + composed.xml(3)[:900]
    capture = read_capture(written(tmp_path / "t", text))
    assert len(capture.measurements) == 6
    assert capture.warnings == ("the last result is cut (left out)",)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda x: x[: len(x) // 2], "<Results> without </Results>"),
        (lambda x: "<!DOCTYPE a [<!ENTITY b 'c'>]>\n" + x, "document type"),
        (lambda x: x.replace("</Profile>", ""), "broken XML"),
        (lambda x: x.replace("<Latency>", DEEP + "<Latency>"), "too deeply"),
        (lambda x: TIME.sub("<Error>interrupted</Error>", x), "timespan 1: interrupted"),
        (lambda x: x.replace(">3.00<", ">NaN<"), "without one whole result"),
    ],
)  # fmt: skip
def test_broken_xml_is_refused(damage, match: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=match):
        read_capture(written(tmp_path / "t", damage(composed.xml())))


def test_percentiles_that_do_not_ascend_are_left_out(tmp_path: Path) -> None:
    text = composed.xml()
    table = re.findall(r"<ReadMilliseconds>[\d.]+</ReadMilliseconds>", text)
    text = text.replace(table[50], "<ReadMilliseconds>0.001</ReadMilliseconds>", 1)
    text = text.replace(table[90], "<ReadMilliseconds>0.001</ReadMilliseconds>", 1)
    total = read_capture(written(tmp_path / "t", text)).measurements[0]
    assert not total.ops["read"].lat.percentiles_s
    assert total.ops["write"].lat.percentiles_s
    assert has(total.warnings, "impossible-latency")


def test_old_versions_are_doubted(tmp_path: Path) -> None:
    old = read_capture(written(tmp_path / "t", composed.xml(version="2.0.21a"))).measurements[0]
    new = read_capture(written(tmp_path / "t", composed.xml())).measurements[0]
    assert has(old.warnings, "inflated-latency")
    assert not has(new.warnings, "inflated-latency")


def test_rate_limits(tmp_path: Path) -> None:
    limited = composed.xml().replace("<Throughput>0<", '<Throughput unit="IOPS">500<')
    assert (
        read_capture(written(tmp_path / "t", limited)).measurements[0].conditions.rate_iops == 1000
    )
    limited = composed.xml().replace("<Throughput>0<", "<Throughput>4096<")
    assert (
        read_capture(written(tmp_path / "t", limited)).measurements[0].conditions.rate_iops == 2000
    )


def test_rows_that_people_cut_out(tmp_path: Path) -> None:
    text = composed.text().split("\n")
    text = [x for x in text if not re.match(r"\s+1 \|", x)]
    (total,) = read_capture(written(tmp_path / "t", "\n".join(text))).measurements
    assert total.ops["read"].count == 14_000
    assert has(total.warnings, "thread-cut")


def test_conditions_from_the_command_line_alone(tmp_path: Path) -> None:
    text = composed.text()
    a, b = text.index("Input parameters"), text.index("System information")
    total = read_capture(written(tmp_path / "t", text[:a] + text[b:])).measurements[0]
    c = total.conditions
    assert (c.block_size, c.iodepth, c.read_fraction, c.access) == (4096, 8, 0.7, "random")


def test_text_without_totals_is_cut(tmp_path: Path) -> None:
    text = composed.text()
    with pytest.raises(CaptureError, match="its tables are cut"):
        read_capture(written(tmp_path / "t", text[: text.index("Write IO") + 300]))


def test_linux_port() -> None:
    mixed = read_capture(DATA / "diskspd-text" / "linux_mix7030.txt").measurements[0]
    assert (mixed.conditions.jobs, mixed.conditions.iodepth) == (2, 4)
    assert mixed.ops["read"].lat.mean_s == pytest.approx(0.321e-3)
    assert mixed.cpu.total_pct == pytest.approx(199.32)
    plain = read_capture(DATA / "diskspd-text" / "linux_read_without_latency.txt").measurements[0]
    assert plain.ops["read"].lat is None
    assert plain.ops["read"].iops == 23194.0
    assert "write" not in plain.ops


def test_samples_are_what_the_writers_write() -> None:
    packed = (DATA / "diskspd-xml" / "two_targets.xml.gz").read_bytes()
    assert gzip.decompress(packed).decode() == composed.xml()
    assert (DATA / "diskspd-text" / "two_targets.txt").read_text() == composed.text()
    assert np.all(np.diff(composed.threads()[0].reads) >= 0)
