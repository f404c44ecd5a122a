"""fio JSON: what is read of each kind of run, what is said of it, and what is refused."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from nvmesim.capture.capture import Capture, Measurement, percentiles_of_bins
from nvmesim.capture.registry import read_captures
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import DATA, only, read_text, refused, sample

JSON = DATA / "fio-json"
GROUP = "fio-json/randread_4k_qd4_nj3_group.json"
OLD = "2.17"
"""Apart from its key: logs of this folder would take it for the version of results beside them."""


def table_of(name: str) -> dict:
    return json.loads(sample(f"fio-json/{name}"))


def group(changes: dict | None = None) -> dict:
    """A run of three jobs reported as one; *changes* are path -> value, None takes the key away."""
    table = json.loads(sample(GROUP))
    for path, value in (changes or {}).items():
        *folders, key = path.split("/")
        inner = table["jobs"][0]
        for folder in folders:
            inner = inner[folder]
        if value is None:
            del inner[key]
        else:
            inner[key] = value
    return table


def read_table(table: object, tmp_path: Path) -> Capture:
    return read_text(table if isinstance(table, str) else json.dumps(table), tmp_path, "c.json")


def one(table: object, tmp_path: Path) -> Measurement:
    (measurement,) = read_table(table, tmp_path).measurements
    return measurement


def refusal(table: object, tmp_path: Path) -> str:
    return refused(table if isinstance(table, str) else json.dumps(table), tmp_path, "c.json")


def test_separate_jobs_merge_without_averaging_percentiles() -> None:
    m = only(JSON / "randread_4k_qd4_nj3_separate.json.gz")
    assert m.conditions.outstanding == 12
    assert m.ops["read"].clat.percentiles_s == {}
    assert has(m.warnings, "separate-percentiles")


def test_separate_jobs_with_histograms_merge_exactly(tmp_path: Path) -> None:
    """Two jobs with the same histogram have the percentiles of one, and twice the samples."""
    table = table_of("randread_4k_qd4.jsonplus.json.gz")
    alone = one(table, tmp_path).ops["read"].clat
    table["jobs"] *= 2
    two = one(table, tmp_path).ops["read"].clat
    assert two.count == 2 * alone.count
    assert two.percentiles_s == pytest.approx(alone.percentiles_s)
    assert two.stddev_s == pytest.approx(alone.stddev_s)
    np.testing.assert_array_equal(two.bin_count, 2 * alone.bin_count)


def test_percentiles_are_those_of_the_bins() -> None:
    """fio's own percentiles are the nearest-rank bin midpoints of its own histogram."""
    clat = only(JSON / "randrw_7030_4k_qd32.jsonplus.json.gz").ops["read"].clat
    assert clat.bin_count.sum() == clat.count
    found = percentiles_of_bins(clat.bin_s, clat.bin_count, clat.percentiles_s)
    assert found == pytest.approx(dict(clat.percentiles_s), rel=1e-9)


def test_a_mix_of_sizes_is_taken_where_the_bytes_bear_it_out(tmp_path: Path) -> None:
    """fio drew smaller ones than the shares of this sample ask for: 10.8 KB, not 13.9."""
    asked = only(JSON / "randrw_bssplit_qd8.json.gz")
    assert asked.conditions.block_size is None
    assert has(asked.warnings, "size-unknown")
    table = table_of("randrw_bssplit_qd8.json.gz")
    for op, mean in (("read", 0.6 * 4096 + 0.3 * 16384 + 0.1 * 65536), ("write", 20480)):
        result = table["jobs"][0][op]
        result["bw_bytes"] = result["iops"] * mean
    mix = one(table, tmp_path).conditions.block_size
    assert sum(mix.values()) == pytest.approx(1.0)
    assert mix[16384] / mix[65536] == pytest.approx(3)


def fio2(table: dict, *, kib: bool) -> dict:
    """Return *table* as fio 2 wrote it: microseconds, no N, ``io_bytes`` in KiB before 2.21."""
    for job in table["jobs"]:
        for op in ("read", "write", "trim"):
            direction = job[op]
            for kind in ("slat", "clat", "lat"):
                latency = direction.pop(f"{kind}_ns")
                latency.pop("N", None)
                for key in ("min", "max", "mean", "stddev"):
                    latency[key] /= 1000
                for key in latency.get("percentile", {}):
                    latency["percentile"][key] //= 1000
                direction[kind] = latency
            if kib:
                direction["io_bytes"] //= 1024
                direction.pop("io_kbytes", None)
                direction.pop("bw_bytes", None)
        job.pop("job_runtime", None)
    return {**table, "fio version": f"fio-{OLD}"}


@pytest.mark.parametrize("kib", [True, False])
def test_fio_2(tmp_path: Path, kib: bool) -> None:
    new, old = one(group(), tmp_path), one(fio2(group(), kib=kib), tmp_path)
    assert old.ops["read"].bytes == new.ops["read"].bytes
    assert old.conditions == new.conditions
    assert old.ops["read"].clat.mean_s == pytest.approx(new.ops["read"].clat.mean_s)
    assert old.ops["read"].clat.count == old.ops["read"].count


def test_percentiles_and_bins_of_fio_2(tmp_path: Path) -> None:
    """Slots that were not used are no percentiles; bins are keyed by their index."""
    table = fio2(group(), kib=True)
    text = json.dumps(table).replace('"percentile": {', '"percentile": {"0.00": 0, "0.00": 0, ')
    assert min(one(text, tmp_path).ops["read"].clat.percentiles_s) == 1.0
    bins = {"FIO_IO_U_PLAT_BITS": 6, "FIO_IO_U_PLAT_NR": 1216, "10": 5, "128": 7}
    table["jobs"][0]["read"]["clat"]["bins"] = bins
    clat = one(table, tmp_path).ops["read"].clat
    assert clat.bin_s.tolist() == pytest.approx([10e-6, 129e-6])


def test_client_server(tmp_path: Path) -> None:
    """fio's own sum over clients is not a third client."""
    table = group()
    job = table.pop("jobs")[0]
    total = {**job, "jobname": "All clients"}
    table["client_stats"] = [{**job, "hostname": "a"}, {**job, "hostname": "b"}, total]
    table["global options"] = [{"hostname": "a", "ioengine": "libaio"}]
    capture = read_table(table, tmp_path)
    assert [m.label for m in capture.measurements] == ["a: mj", "b: mj"]


def test_very_old_versions_count_nothing(tmp_path: Path) -> None:
    n_reads = group()["jobs"][0]["read"]["total_ios"]
    found = one(group({"read/total_ios": None}), tmp_path).ops["read"].count
    assert found == pytest.approx(n_reads, rel=1e-3)


def test_jobs_that_ask_different_things_are_counted(tmp_path: Path) -> None:
    table = group()
    asked = {"jobname": "other", "job options/rw": "randwrite", "job options/bs": "64k"}
    table["jobs"] += group(asked)["jobs"]
    second = table["jobs"][1]
    second["write"], second["read"] = second["read"], second["write"]
    for key in ("io_bytes", "bw_bytes"):
        second["write"][key] *= 65536 // 4096
    conditions = one(table, tmp_path).conditions
    assert conditions.read_fraction == 0.5
    assert conditions.block_size == {4096: 0.5, 65536: 0.5}


def test_reports_that_are_no_json_are_left_out(tmp_path: Path) -> None:
    noise = '{"fio version": 1' + "{" * 50 + "\n"
    capture = read_table(noise * 40 + json.dumps(group()), tmp_path)
    assert len(capture.measurements) == 1
    assert "left out: 40 reports that are cut or no JSON" in capture.warnings


def test_reports_of_one_run_are_told_from_runs_of_one_job(tmp_path: Path) -> None:
    """A later report of the same run has counted on, and began when the first began."""

    def measured(*tables: dict) -> int:
        return len(read_table("\n".join(map(json.dumps, tables)), tmp_path).measurements)

    first, second = group(), group()
    second["jobs"][0]["read"]["total_ios"] += 1
    assert measured(first, second) == 1
    assert measured(second, first) == 2  # it counted back: another run
    assert measured(first, {**second, "timestamp": second["timestamp"] + 60}) == 2
    third = copy.deepcopy(second)
    third["jobs"][0]["jobname"] = "else"
    assert measured(first, third) == 2
    for table in (first, second):
        table.pop("timestamp")
    assert measured(first, second) == 1  # without a time, the counts tell
    second["jobs"][0]["read"].pop("total_ios")
    assert measured(first, second) == 2  # nor counts: taken as two


def test_zero_samples_with_the_reason(tmp_path: Path) -> None:
    text = "fio: file creation disallowed by allow_file_create=0\n"
    text += json.dumps(group({"read/total_ios": 0, "read/io_bytes": 0}))
    assert refusal(text, tmp_path).startswith(
        "job 'mj' has zero samples: it did no read and no write (file creation disallowed"
    )


def test_other_damage(tmp_path: Path) -> None:
    text = sample(GROUP)
    mean = '"mean" : 189380.325306'
    for damaged, found in (
        (json.dumps(group())[:-1] + ', "x": ' + "[" * 100_000, "nested too deeply"),
        (text.replace(mean, '"mean" : ' + "9" * 5000), "holds a number that cannot be read"),
        (text.replace(mean, '"mean" : ' + "9" * 4000), "jobs[0].read.clat_ns.mean is 999"),
        (text.replace(":", ";", 20), ""),
    ):
        assert found in refusal(damaged, tmp_path)


def test_folder_and_globs(tmp_path: Path) -> None:
    for name in ("qd16.json", "qd2.json"):
        (tmp_path / name).write_text(json.dumps(group()))
    (tmp_path / "job.fio").write_text("[global]\nrw=randread\n")
    captures = read_captures([tmp_path])
    assert [c.file.name for c in captures.files] == ["qd2.json", "qd16.json"]
    assert len(captures.unread) == 1
    assert "job.fio: is a fio job file; run it with fio" in captures.unread[0]
    assert len(read_captures(str(tmp_path / "*.json")).files) == 2
    for given, found in (
        (str(tmp_path / "*.xml"), "no file matches"),
        (tmp_path / "qd3.json", r"no such file; did you mean 'qd2\.json'"),
        (tmp_path / "job.fio", r"job\.fio: is a fio job file"),
    ):
        with pytest.raises(CaptureError, match=found):
            read_captures(given)
