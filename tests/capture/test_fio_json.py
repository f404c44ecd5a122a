"""fio JSON: what is read of each kind of run, and what is refused."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import only

DATA = Path(__file__).parent / "data" / "fio-json"
SECONDS_FOR_ONE_MB = 0.2
"""A folder of a hundred captures is then read while the user looks."""


def sample(name: str) -> dict:
    path = DATA / name
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(raw)


def read_table(table: object, tmp_path: Path) -> Capture:
    path = tmp_path / "capture.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return read_capture(path)


def group() -> dict:
    return sample("randread_4k_qd4_nj3_group.json")


def refusal(table: object, tmp_path: Path) -> str:
    with pytest.raises(CaptureError) as caught:
        read_table(table, tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{tmp_path / 'capture.json'}: ")


def test_grouped_jobs() -> None:
    m = only(DATA / "randread_4k_qd4_nj3_group.json")
    assert (m.conditions.jobs, m.conditions.iodepth, m.conditions.outstanding) == (3, 4, 12)
    assert (m.conditions.access, m.conditions.read_fraction) == ("random", 1.0)
    assert (m.conditions.block_size, m.conditions.engine) == (4096, "libaio")
    assert (m.conditions.direct, m.conditions.targets) == (True, 1)
    read = m.ops["read"]
    assert (read.count, read.bytes, read.iops) == (184285, 754831360, 61407.864045)


def test_separate_jobs_merge_without_averaging_percentiles() -> None:
    m = only(DATA / "randread_4k_qd4_nj3_separate.json.gz")
    assert m.conditions.outstanding == 12
    assert m.ops["read"].clat.percentiles_s == {}
    assert has(m.warnings, "separate-percentiles")


def test_separate_jobs_with_histograms_merge_exactly(tmp_path: Path) -> None:
    """Two jobs with the same histogram have the percentiles of one, and twice the samples."""
    table = sample("randread_4k_qd4.jsonplus.json.gz")
    one = read_table(table, tmp_path).measurements[0].ops["read"].clat
    table["jobs"] *= 2
    two = read_table(table, tmp_path).measurements[0].ops["read"].clat
    assert two.count == 2 * one.count
    assert two.percentiles_s == pytest.approx(one.percentiles_s)
    assert two.stddev_s == pytest.approx(one.stddev_s)
    assert two.bin_count is not None
    assert one.bin_count is not None
    np.testing.assert_array_equal(two.bin_count, 2 * one.bin_count)


def test_percentiles_are_those_of_the_bins() -> None:
    """fio's own percentiles are the nearest-rank bin midpoints of its own histogram."""
    clat = only(DATA / "randrw_7030_4k_qd32.jsonplus.json.gz").ops["read"].clat
    assert clat.bin_s is not None
    assert clat.bin_count.sum() == clat.count
    from nvmesim.capture.histogram import percentiles_of_bins

    found = percentiles_of_bins(clat.bin_s, clat.bin_count, clat.percentiles_s)
    assert found == pytest.approx(dict(clat.percentiles_s), rel=1e-9)


def test_status_interval_is_cumulative() -> None:
    m = only(DATA / "randread_4k_qd1.status_interval.json.gz")
    assert m.ops["read"].count == 53286


def test_appended_runs_all_count(tmp_path: Path) -> None:
    first, second = group(), group()
    second["timestamp"] += 60
    second["jobs"][0]["read"]["total_ios"] += 1
    text = json.dumps(first) + "\n" + json.dumps(second)
    assert len(read_table(text, tmp_path).measurements) == 2


def test_stonewalled_jobs_are_measurements_of_their_own() -> None:
    capture = read_capture(DATA / "jobfile_global_stonewall.json.gz")
    assert [m.label for m in capture.measurements] == ["warm-read", "mixed", "seq-w"]
    warm, mixed, seq = (m.conditions for m in capture.measurements)
    assert (warm.block_size, warm.iodepth, warm.jobs) == (4096, 4, 1)
    assert (mixed.read_fraction, mixed.iodepth, mixed.jobs) == (0.7, 16, 2)
    assert (seq.block_size, seq.access, seq.read_fraction) == (131072, "sequential", 0.0)


def test_text_around_the_object() -> None:
    for name in ("stdout_normal_json_with_eta.txt", "randread_4k_qd4.json_normal_terse.txt.gz"):
        assert only(DATA / name).ops["read"].count > 100_000


def test_a_message_inside_the_object_is_counted(tmp_path: Path) -> None:
    lines = json.dumps(group(), indent=2).split("\n")
    lines.insert(30, "fio: pid=0, got signal=11")
    capture = read_table("\n".join(lines), tmp_path)
    assert capture.skipped == 1
    assert capture.warnings == ("1 lines of fio's messages stood inside the JSON",)


def test_sync_engine_has_depth_one_and_no_slat() -> None:
    m = only(DATA / "psync_qd8.json")
    assert (m.conditions.iodepth, m.ops["read"].slat) == (1, None)


def test_a_mix_of_sizes_is_taken_where_the_bytes_bear_it_out(tmp_path: Path) -> None:
    """fio drew smaller ones than the shares of this sample ask for: 10.8 KB, not 13.9."""
    asked = only(DATA / "randrw_bssplit_qd8.json.gz")
    assert asked.conditions.block_size is None
    assert has(asked.warnings, "size-unknown")
    table = json.loads(gzip.decompress((DATA / "randrw_bssplit_qd8.json.gz").read_bytes()))
    for op, mean in (("read", 0.6 * 4096 + 0.3 * 16384 + 0.1 * 65536), ("write", 20480)):
        result = table["jobs"][0][op]
        result["bw_bytes"] = result["iops"] * mean
    mix = read_table(json.dumps(table), tmp_path).measurements[0].conditions.block_size
    assert isinstance(mix, dict)
    assert sum(mix.values()) == pytest.approx(1.0)
    assert mix[16384] / mix[65536] == pytest.approx(3)


def test_a_rate_limit_is_said() -> None:
    rated = only(DATA / "randread_8k_rate2000_poisson.json.gz")
    assert rated.conditions.rate_iops == 2000
    assert has(rated.warnings, "rate-limited")


def test_several_drives_are_counted() -> None:
    assert only(DATA / "fio_two_devices.json.gz").conditions.targets == 2


def test_duplicate_keys_are_read(tmp_path: Path) -> None:
    text = (DATA / "randread_4k_qd4_nj3_group.json").read_text()
    twice = text.replace('"filename" : "testfile.bin"', '"filename" : "/dev/a", "filename" : "b"')
    assert twice != text
    assert read_table(twice, tmp_path).measurements[0].conditions.targets == 2


def test_global_options_lie_under_the_jobs(tmp_path: Path) -> None:
    table = group()
    table["global options"] = {"iodepth": "64", "ioengine": "io_uring", "ramp_time": "30s"}
    conditions = read_table(table, tmp_path).measurements[0].conditions
    assert (conditions.iodepth, conditions.engine, conditions.ramp_s) == (4, "libaio", 0.0)
    del table["jobs"][0]["job options"]["iodepth"]
    del table["jobs"][0]["job options"]["ramp_time"]
    conditions = read_table(table, tmp_path).measurements[0].conditions
    assert (conditions.iodepth, conditions.ramp_s) == (64, 30.0)


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
    return {**table, "fio version": "fio-2.17"}


@pytest.mark.parametrize("kib", [True, False])
def test_fio_2(tmp_path: Path, kib: bool) -> None:
    new = read_table(group(), tmp_path).measurements[0]
    old = read_table(fio2(group(), kib=kib), tmp_path).measurements[0]
    assert old.ops["read"].bytes == new.ops["read"].bytes
    assert old.conditions == new.conditions
    assert old.ops["read"].clat.mean_s == pytest.approx(new.ops["read"].clat.mean_s)
    assert old.ops["read"].clat.count == old.ops["read"].count


def test_unused_percentile_slots_of_fio_2(tmp_path: Path) -> None:
    text = json.dumps(fio2(group(), kib=True)).replace(
        '"percentile": {', '"percentile": {"0.00": 0, "0.00": 0, '
    )
    clat = read_table(text, tmp_path).measurements[0].ops["read"].clat
    assert min(clat.percentiles_s) == 1.0


def test_raw_index_bins(tmp_path: Path) -> None:
    table = fio2(group(), kib=True)
    bins = {"FIO_IO_U_PLAT_BITS": 6, "FIO_IO_U_PLAT_NR": 1216, "10": 5, "128": 7}
    table["jobs"][0]["read"]["clat"]["bins"] = bins
    clat = read_table(table, tmp_path).measurements[0].ops["read"].clat
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


def test_only_one_operation_reported_as_mixed(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["mixed"] = table["jobs"][0].pop("read")
    del table["jobs"][0]["write"]
    assert read_table(table, tmp_path).measurements[0].ops["read"].count == 184285


def test_cpu_bound_is_a_warning(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0].update(usr_cpu=20.0, sys_cpu=77.5)
    m = read_table(table, tmp_path).measurements[0]
    assert has(m.warnings, "cpu-bound")
    table["jobs"][0]["job options"]["ioengine"] = "spdk"
    m = read_table(table, tmp_path).measurements[0]
    assert not has(m.warnings, "cpu-bound")


def test_buffered_is_a_warning(tmp_path: Path) -> None:
    table = group()
    del table["jobs"][0]["job options"]["direct"]
    assert has(read_table(table, tmp_path).measurements[0].warnings, "page-cache")


def test_the_operation_of_a_zero_latency_has_none(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["read"]["clat_ns"] = {"min": 0, "max": 0, "mean": 0, "stddev": 0, "N": 9}
    read = read_table(table, tmp_path).measurements[0].ops["read"]
    assert read.clat is None
    assert read.lat is not None


def test_a_failed_job(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["error"] = 28
    assert refusal(table, tmp_path).startswith(
        "job 'mj' failed with error=28 (No space left on device);"
    )
    table["jobs"].append({**group()["jobs"][0], "groupid": 1})
    capture = read_table(table, tmp_path)
    assert len(capture.measurements) == 1
    assert capture.warnings[0].startswith("left out: job 'mj' failed with error=28")


def test_without_latencies_there_is_throughput(tmp_path: Path) -> None:
    table = group()
    for kind in ("slat_ns", "clat_ns", "lat_ns"):
        table["jobs"][0]["read"][kind] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0, "N": 0}
    capture = read_table(table, tmp_path)
    read = capture.measurements[0].ops["read"]
    assert (read.clat, read.lat) == (None, None)
    assert read.iops == table["jobs"][0]["read"]["iops"]
    assert has(capture.warnings, "no-latencies")


def test_zero_samples_with_the_reason(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["read"].update(total_ios=0, io_bytes=0)
    text = "fio: file creation disallowed by allow_file_create=0\n" + json.dumps(table)
    assert refusal(text, tmp_path).startswith(
        "job 'mj' has zero samples: it did no read and no write (file creation disallowed"
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("NaN", "jobs[0].read.clat_ns.mean is NaN"),
        ("-nan", "jobs[0].read.clat_ns.mean is NaN"),
        ("inf", "jobs[0].read.clat_ns.mean is inf, more than"),
        ("-5", "jobs[0].read.clat_ns.mean is -5, negative"),
        ("1e300", "jobs[0].read.clat_ns.mean is 1e+300, more than"),
        ("9" * 5000, "holds a number that cannot be read"),
        ("9" * 4000, "jobs[0].read.clat_ns.mean is 999"),
        ('"fast"', "jobs[0].read.clat_ns.mean is 'fast', not a number"),
    ],
)
def test_numbers_that_cannot_be(value: str, found: str, tmp_path: Path) -> None:
    text = (DATA / "randread_4k_qd4_nj3_group.json").read_text()
    damaged = text.replace('"mean" : 189380.325306', f'"mean" : {value}')
    assert damaged != text
    assert refusal(damaged, tmp_path).startswith(found)


def test_other_damage(tmp_path: Path) -> None:
    table = group()
    deep = json.dumps(table)[:-1] + ', "x": ' + "[" * 100_000
    assert "nested too deeply" in refusal(deep, tmp_path)
    assert refusal({**table, "jobs": []}, tmp_path).startswith("has no jobs")
    assert refusal({**table, "jobs": [1]}, tmp_path).startswith("jobs[0] is '1', not a table")
    assert refusal({**table, "jobs": {"a": 1}}, tmp_path).startswith("jobs is")
    assert "known formats" in refusal({"results": [1, 2, 3]}, tmp_path)
    assert "is empty" in refusal(" \n", tmp_path)
    text = (DATA / "randread_4k_qd4_nj3_group.json").read_text()
    assert refusal(text[:4000], tmp_path).startswith("ends inside the JSON, at line 1")
    assert refusal(text.replace(":", ";", 20), tmp_path)


def test_a_megabyte_of_json_plus_is_read_at_once(tmp_path: Path) -> None:
    table = sample("randrw_7030_4k_qd32.jsonplus.json.gz")
    table["jobs"] = [{**table["jobs"][0], "groupid": k} for k in range(40)]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(table, indent=2))
    assert path.stat().st_size > 1_000_000
    times = []
    for _ in range(5):
        start = time.process_time()
        assert len(read_capture(path).measurements) == 40
        times.append(time.process_time() - start)
    megabytes = path.stat().st_size / 1e6
    print(f"{min(times) / megabytes * 1000:.0f} ms a MB of json+")
    assert min(times) / megabytes < SECONDS_FOR_ONE_MB


def test_folder_and_globs(tmp_path: Path) -> None:
    for name in ("qd16.json", "qd2.json"):
        (tmp_path / name).write_text(json.dumps(group()))
    (tmp_path / "job.fio").write_text("[global]\nrw=randread\n")
    captures = read_captures([tmp_path])
    assert [c.file.name for c in captures.files] == ["qd2.json", "qd16.json"]
    assert len(captures.unread) == 1
    assert "job.fio: is a fio job file; run it with fio" in captures.unread[0]
    assert len(read_captures(str(tmp_path / "*.json")).files) == 2
    with pytest.raises(CaptureError, match="no file matches"):
        read_captures(str(tmp_path / "*.xml"))
    with pytest.raises(CaptureError, match=r"no such file; did you mean 'qd2\.json'"):
        read_captures(tmp_path / "qd3.json")
    with pytest.raises(CaptureError, match=r"job\.fio: is a fio job file"):
        read_captures(tmp_path / "job.fio")
