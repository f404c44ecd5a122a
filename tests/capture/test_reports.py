"""Readers of printed results: every number that is shown, against figures from the file's own text.

What is expected is worked out here by hand or by other means than the reader's: never copied from
what it returned.
"""

import tomllib
from pathlib import Path

import pytest

from nvmesim.capture.capture import Latency, Measurement, Op, OpResult
from nvmesim.capture.registry import read_capture
from tests.capture.contract import DATA, read_text, refused, sample


def figures(m: Measurement, op: Op) -> tuple[float, float, float | None]:
    """IOPS, bytes/s and mean latency in us."""
    result = m.ops[op]
    latency = result.lat or result.clat
    return result.iops, result.bytes_per_s, latency and 1e6 * (latency.mean_s or 0)


def load(m: Measurement) -> tuple[object, ...]:
    c = m.conditions
    return c.read_fraction, c.access, c.block_size, c.jobs, c.iodepth


def measurements(name: str) -> tuple[Measurement, ...]:
    return read_capture(DATA / name).measurements


def test_perf_that_calls_mebibytes_megabytes(tmp_path: Path) -> None:
    renamed = read_text(sample("spdk/perf.txt", ("MiB/s", "MB/s ")), tmp_path)
    assert renamed.measurements == measurements("spdk/perf.txt")


EXPECTED = {
    path: figures
    for name in ("figures", "samples")
    for path, figures in tomllib.loads((DATA / "expected" / f"{name}.toml").read_text()).items()
}
KINDS = ("slat", "clat", "lat")
COUNTS = {"iops", "bytes_per_s", "count", "bytes"}


def check_op(result: OpResult, expected: dict[str, float], path: str) -> None:
    latency = result.lat or result.clat
    assert (latency is None) == expected.get("unknown", latency is None), path
    for key in COUNTS & set(expected):
        assert getattr(result, key) == pytest.approx(expected[key]), f"{path} {key}"
    check_latency(latency, {k: v for k, v in expected.items() if k not in COUNTS}, path)


def check_latency(latency: Latency | None, expected: dict[str, float], path: str) -> None:
    for key, value in expected.items():
        if key == "samples":
            assert latency.count == value, path
        elif key == "bins":
            assert len(latency.bin_s) == value, path
        elif key[0] == "p":
            found = latency.percentiles_s[float(key[1:])]
            assert 1e6 * found == pytest.approx(value), f"{path} {key}"
        elif key != "unknown":
            assert 1e6 * getattr(latency, f"{key}_s") == pytest.approx(value), f"{path} {key}"


@pytest.mark.parametrize("path", EXPECTED)
def test_every_figure_of_a_sample(path: str) -> None:
    capture = read_capture(DATA / path)
    for m, expected in zip(capture.measurements, EXPECTED[path], strict=True):
        ops = {**m.ops, **({"mixed": m.mixed} if m.mixed else {})}
        listed = {"read", "write", "mixed"} & set(expected)
        assert not listed or listed == set(ops)
        for op in listed:
            check_op(ops[op], expected[op], f"{path} {op}")
            known = {kind for kind in KINDS if f"{op}_{kind}" in expected}
            assert not known or known == {kind for kind in KINDS if getattr(ops[op], kind)}
            for kind in known:
                latency = getattr(ops[op], kind)
                check_latency(latency, expected[f"{op}_{kind}"], f"{path} {op} {kind}")
        assert m.label == expected.get("label", m.label)
        assert capture.version == expected.get("version", capture.version)
        for key, value in expected.get("load", {}).items():
            wanted = value if isinstance(value, str) else pytest.approx(value)
            assert getattr(m.conditions, key) == wanted, f"{path} {key}"
        assert [getattr(m.conditions, key) for key in expected.get("unknown", [])] == [
            None for _ in expected.get("unknown", [])
        ]
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


def test_a_flatfile_has_no_writes_of_a_rounding(tmp_path: Path) -> None:
    text = sample("vdbench/flatfile.html")
    row = next(line for line in text.split("\n") if "avg_" in line)
    header = next(line for line in text.split("\n") if line.lstrip().startswith("tod")).split()
    cells = dict(zip(header, row.split(), strict=True))
    cells |= {"rate": "32000.1", "read%": "99.99999999999999"}
    changed = text.replace(row, " ".join(cells.values()))
    assert set(read_text(changed, tmp_path).measurements[0].ops) == {"read"}


def cut_before_averages(name: str) -> str:
    text = sample(f"vdbench/{name}")
    return text[: text.index("avg_2-3")].rpartition("\n")[0] + "\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (cut_before_averages("flatfile.html"), "ends before its averages"),
        (cut_before_averages("summary.html"), "ends before its averages"),
        (sample("yabs/table.txt", ("(50.0k)", "(5.0k)")),
         "line 9: 4k: '200.00 MB/s  (5.0k)' makes 4.883e+04"),
        (sample("elbencho/table.txt", ("     8000\n", "     4000\n")),
         "65536 MiB in 4 s make 16384 MiB/s, 8192 are printed"),
    ],
    ids=["flatfile", "summary", "yabs", "elbencho"],
)  # fmt: skip
def test_what_is_cut_or_contradicts_itself_is_refused(
    text: str, found: str, tmp_path: Path
) -> None:
    assert found in refused(text, tmp_path)


def test_the_whole_table_of_yabs_says_what_its_megabytes_are(tmp_path: Path) -> None:
    """409.60 MB/s of 512 KiB are 781 or 800 a second: a printed 0.78k does not outvote the rest."""
    capture = read_text(sample("yabs/table.txt", ("(800)", "(780)")), tmp_path)
    assert capture.measurements[2].ops["read"].iops == pytest.approx(800)


def test_a_row_of_zero_did_not_run(tmp_path: Path) -> None:
    ran = "1024.000 MB/s [   1000.0 IOPS] <  7950.00 us>"
    zero = "   0.000 MB/s [      0.0 IOPS] <     0.00 us>"
    capture = read_text(sample("crystaldiskmark/kdiskmark.txt", (ran, zero)), tmp_path)
    assert len(capture.measurements) == 3
    assert "line 8: a row of zero did not run (left out)" in capture.warnings


def test_two_runs_of_perf_are_not_summed(tmp_path: Path) -> None:
    """Perf of about 19.10, whose header has the latencies' unit among its columns."""
    run = (
        "[root@host perf]# ./perf -q {} -o 4096 -w randread -t 60 -c 0x1\n"
        "Device Information             :       IOPS      MiB/s    Average        Latency(us) min"
        "        max\n"
        "PCIE (0000:01:00.0) from core 0:  {}.00     {}     200.00      19.03    1761.46\n"
        "Total                          :  {}.00     {}     200.00      19.03    1761.46\n"
    )
    rows = [(q, 1000 * q, f"{q * 4.096e6 / 2**20:.2f}") for q in (16, 32)]
    text = "".join(run.format(q, iops, rate, iops, rate) for q, iops, rate in rows)
    found = read_text(text, tmp_path).measurements
    assert [m.conditions.iodepth for m in found] == [16, 32]
    assert [round(m.ops["read"].iops) for m in found] == [16_000, 32_000]
    assert len({m.label for m in found}) == 2


@pytest.mark.parametrize(("us", "is_kept"), [(900, True), (1300, False), (300, False)])
def test_a_latency_of_another_run_leaves_its_row(us: int, is_kept: bool, tmp_path: Path) -> None:
    """KDiskMark prints the best of each of its numbers: 32 at 1,000 us would be 32,000 IOPS."""
    text = (
        "KDiskMark (3.2.0): https://github.com/JonMagon/KDiskMark\n[Write]\n"
        f"Random 4 KiB (Q= 32, T= 1):   131.072 MB/s [  32000.0 IOPS] < {us}.00 us>\n"
    )
    (found,) = read_text(text, tmp_path).measurements
    assert found.ops["write"].iops == pytest.approx(32_000)
    assert (found.ops["write"].lat is not None) == is_kept


def test_a_latency_summary_alone(tmp_path: Path) -> None:
    text = sample("spdk/perf.txt")
    (m,) = read_text(text[text.index("Summary latency") :], tmp_path).measurements
    assert (m.mixed.iops, m.mixed.count) == (0, 0)
    assert m.mixed.lat.percentiles_s[99.0] == pytest.approx(150.25e-6)


OLD_IOPING = """4.0 KiB from . (ext4 /dev/sda1): request=1 time=296 us
^C
--- . (ext4 /dev/sda1) ioping statistics ---
91 requests completed in 1.5 min, 66 iops, 267.8 KiB/s
min/avg/max/mdev = 296 us / 14.9 ms / 600.3 ms / 75.3 ms
"""


def test_old_ioping_prints_its_rate_and_a_time_with_pauses(tmp_path: Path) -> None:
    (m,) = read_text(OLD_IOPING, tmp_path).measurements
    assert figures(m, "read") == pytest.approx((66, 66 * 4096, 14_900))
    assert (m.ops["read"].count, m.conditions.duration_s) == (91, None)


def test_quotes_inside_the_command_of_elbencho(tmp_path: Path) -> None:
    header, *rows = sample("elbencho/phases.csv").splitlines()
    command = '"/bin/elbencho" "--hosts" "a,b" "--threads" "1" '
    lines = [f"{header},command", *(f"{row},{command}" for row in rows)]
    found = read_text("\n".join(lines) + "\n", tmp_path, "phases.csv")
    plain = read_capture(DATA / "elbencho" / "phases.csv")
    assert [m.ops for m in found.measurements] == [m.ops for m in plain.measurements]
    assert found.warnings == plain.warnings


RESULTS = sample("iometer/results.csv")
SPECIFICATION = "4096,100,70,100,0,1,4096,0"


def test_iometer_cut_in_its_processors_has_no_cpu_figure(tmp_path: Path) -> None:
    cut = RESULTS[: RESULTS.rindex("PROCESSOR,CPU 3")]
    first, second = read_text(cut, tmp_path).measurements
    assert first.cpu is not None
    assert second.cpu is None
    assert second.ops["read"].count == 2583021


def test_iometer_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    lines = RESULTS.split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("'Target Type"))
    for i in range(start, len(lines)):
        if not lines[i].startswith("20"):
            lines[i] = lines[i].replace(",", ";").replace(".", ",")
    capture, plain = (read_text(text, tmp_path) for text in ("\n".join(lines), RESULTS))
    assert [m.ops for m in capture.measurements] == [m.ops for m in plain.measurements]


def test_iometer_without_results_is_refused(tmp_path: Path) -> None:
    first, _, _ = RESULTS.partition("'Time Stamp\n2024-07-01 10:01")
    without_requests = first.replace(",2583021,", ",0,").replace(",1106960,", ",0,")
    for text in (RESULTS[: RESULTS.index("'Results")], without_requests):
        assert "is iometer without one whole result" in refused(text, tmp_path)


def test_specifications_and_rows_that_are_none(tmp_path: Path) -> None:
    for size in ("4096,100,70", "4096,100,-70,100,0,1,4096,0", "large,100,70,100"):
        capture = read_text(RESULTS.replace(SPECIFICATION, size, 1), tmp_path)
        assert capture.skipped == 1
        assert capture.measurements[0].conditions.block_size is None
        assert capture.measurements[0].conditions.access is None
    short = RESULTS.replace("\nALL,All,", "\nALL,All,1,2\nALL,All,", 1)
    assert read_text(short, tmp_path).skipped == 1
    blank = RESULTS.replace(
        "\n'Time Stamp\n2024-07-01 10:01", "\n\n ,\n'Time Stamp\n2024-07-01 10:01"
    )
    assert blank != RESULTS
    assert read_text(blank, tmp_path).rows == read_text(RESULTS, tmp_path).rows


def test_a_script_that_prints_as_crystaldiskmark_does(tmp_path: Path) -> None:
    """Its rates are KiB/s by 1000; a sequential row names no size."""
    text = "Results:\n\nSequential Q32T1 Read: 2150MB/s [   2048 IOPS]\n\n"
    text += "4KB Q8T8 Write: 400MB/s IOPS=100000\n4KB Read: 40MB/s [   10000 IOPS]\n"
    loads = [
        (c.access, c.read_fraction, c.block_size, c.jobs, c.iodepth, c.engine)
        for c in (m.conditions for m in read_text(text, tmp_path).measurements)
    ]
    assert loads == [
        ("sequential", 1.0, 1 << 20, 1, 32, "libaio"), ("random", 0.0, 4096, 8, 8, "libaio"),
        ("random", 1.0, 4096, 1, 1, "libaio"),
    ]  # fmt: skip


def test_sums_of_fio_beside_a_table_of_spdk_hide_nothing(tmp_path: Path) -> None:
    sums = "READ: bw=1784MiB/s (1871MB/s), io=105GiB (112GB), run=60001-60001msec\n"
    capture = read_text(f"{sums}\n{sample('spdk/perf.txt')}", tmp_path)
    assert capture.format == "spdk"
    assert [m.ops for m in capture.measurements] == [m.ops for m in measurements("spdk/perf.txt")]
