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
from tests.capture.contract import DATA, counted, only, read_text, refused, sample

JSON = DATA / "fio-json"
GROUP = "fio-json/randread_4k_qd4_nj3_group.json"
NOTHING = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0, "N": 0}
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


def two_jobs(changes: dict | None = None, **options: object) -> dict:
    """A run of two jobs beside each other; *changes* and *options* are of the second."""
    table = group()
    table["jobs"] += group({"jobname": "other", **(changes or {})})["jobs"]
    table["jobs"][1]["job options"] |= {key: str(value) for key, value in options.items()}
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


def test_global_options_lie_under_the_jobs(tmp_path: Path) -> None:
    table = group()
    table["global options"] = {"iodepth": "64", "ioengine": "io_uring", "ramp_time": "30s"}
    conditions = one(table, tmp_path).conditions
    assert (conditions.iodepth, conditions.engine, conditions.ramp_s) == (4, "libaio", 0.0)
    del table["jobs"][0]["job options"]["iodepth"]
    del table["jobs"][0]["job options"]["ramp_time"]
    conditions = one(table, tmp_path).conditions
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


def test_a_mixed_report_is_of_the_one_operation_or_of_neither(tmp_path: Path) -> None:
    mixed = {"mixed": group()["jobs"][0]["read"], "read": None, "write": None}
    assert one(group(mixed), tmp_path).ops["read"].count == 184285
    mixed["job options/rw"] = "randrw"
    m = one(group(mixed), tmp_path)
    assert not m.ops
    assert m.mixed is not None
    assert m.conditions.read_fraction == 0.5
    assert has(m.warnings, "mixed-report")
    mixed["job options/rwmixread"] = "many"
    assert one(group(mixed), tmp_path).conditions.read_fraction is None


def test_very_old_versions_count_nothing(tmp_path: Path) -> None:
    n_reads = group()["jobs"][0]["read"]["total_ios"]
    found = one(group({"read/total_ios": None}), tmp_path).ops["read"].count
    assert found == pytest.approx(n_reads, rel=1e-3)


def test_jobs_beside_each_other_that_differ(tmp_path: Path) -> None:
    assert not has(one(two_jobs(), tmp_path).warnings, "unequal-depths", "unequal-times")
    half = group()["jobs"][0]["read"]["runtime"] // 2
    for table, code in (
        (two_jobs(iodepth=9), "unequal-depths"),
        (two_jobs({"read/runtime": half}), "unequal-times"),
        (two_jobs(thinktime="5ms"), "thinktime"),
        (two_jobs(rate="8m"), "rate-limited"),
    ):
        assert has(one(table, tmp_path).warnings, code)
    idle = one(two_jobs({"read/total_ios": 0}), tmp_path)
    assert counted(idle.warnings, "idle-jobs") == 1


def test_a_job_that_waits_runs_alone(tmp_path: Path) -> None:
    for options, runs in (({}, 1), ({"wait_for": "mj"}, 2), ({"wait_for_previous": 1}, 2)):
        assert len(read_table(two_jobs(**options), tmp_path).measurements) == runs


def test_jobs_that_ask_different_things_are_counted(tmp_path: Path) -> None:
    table = two_jobs(rw="randwrite", bs="64k")
    second = table["jobs"][1]
    second["write"], second["read"] = second["read"], second["write"]
    for key in ("io_bytes", "bw_bytes"):
        second["write"][key] *= 65536 // 4096
    conditions = one(table, tmp_path).conditions
    assert conditions.read_fraction == 0.5
    assert conditions.block_size == {4096: 0.5, 65536: 0.5}


def test_latencies_that_were_not_measured(tmp_path: Path) -> None:
    none = group({f"read/{kind}_ns": NOTHING for kind in ("slat", "clat", "lat")})
    capture = read_table(none, tmp_path)
    read = capture.measurements[0].ops["read"]
    assert (read.clat, read.lat) == (None, None)
    assert read.iops == none["jobs"][0]["read"]["iops"]
    assert has(capture.warnings, "no-latencies")


def test_a_message_inside_the_object_is_counted(tmp_path: Path) -> None:
    lines = json.dumps(group(), indent=2).split("\n")
    lines.insert(30, "fio: pid=0, got signal=11")
    capture = read_table("\n".join(lines), tmp_path)
    assert capture.skipped == 1
    assert capture.warnings == ("1 lines of fio's messages stood inside the JSON",)


def test_json_of_fio_among_other_json(tmp_path: Path) -> None:
    text = json.dumps(group())
    assert len(read_table('{"note": 1}\n' + text, tmp_path).measurements) == 1
    assert "cut or none, at line 2" in " ".join(read_table(text + "\n{cut", tmp_path).warnings)
    noise = '{"fio version": 1' + "{" * 50 + "\n"
    capture = read_table(noise * 40 + text, tmp_path)
    assert len(capture.measurements) == 1
    assert "left out: 40 reports that are cut or no JSON" in capture.warnings
    inside = read_table({"host": [{"result": group()}]}, tmp_path)
    assert inside.measurements == read_table(text, tmp_path).measurements


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


def test_a_failed_job(tmp_path: Path) -> None:
    table = two_jobs({"error": 28, "groupid": 1})
    capture = read_table(table, tmp_path)
    assert len(capture.measurements) == 1
    assert has(capture.warnings, "job-failed")
    table["jobs"][1]["groupid"] = 0  # beside the good one
    capture = read_table(table, tmp_path)
    assert capture.measurements[0].ops["read"].count == 184285
    assert has(capture.warnings, "job-failed")


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
