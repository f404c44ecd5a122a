"""The CSV of points: what a cell means, and which cells are refused."""

import re
from pathlib import Path

import pytest

from nvmesim.capture.readers import points_columns
from tests.capture.contract import read_text, refused

RATE_AND_LATENCY = "op,jobs,iodepth,iops,lat_mean_us\nrandread,1,1,12500,"
BANDWIDTH = "op,block_size,iops,bw_mb_s\nread,"


def test_total_and_completion_percentiles_are_kept_apart(tmp_path: Path) -> None:
    text = "op,iops,p99_us,lat_p99_us,clat_mean_us\nrandread,1000,90,100,50\n"
    read = read_text(text, tmp_path).measurements[0].ops["read"]
    assert read.clat.percentiles_s == pytest.approx({99.0: 90e-6})
    assert read.clat.mean_s == pytest.approx(50e-6)
    assert read.lat.percentiles_s == pytest.approx({99.0: 100e-6})


@pytest.mark.parametrize(
    "text",
    [
        "op;block_size;iops;p99_us\nrandread;4 KiB;1000,5;90,25\n",
        "op\tblock_size\tiops\tp99_us\nrandread\t4 KiB\t1000,5\t90,25\n",
        '\n# note\n"OP", Block_Size ,iops,p99_us\r\nrandread,4096,1000.5,90.25\r\n',
    ],
)
def test_separators_and_decimal_commas(text: str, tmp_path: Path) -> None:
    (m,) = read_text(text, tmp_path).measurements
    assert m.ops["read"].iops == 1000.5
    assert m.conditions.block_size == 4096
    assert m.ops["read"].clat.percentiles_s == pytest.approx({99.0: 90.25e-6})


def test_latencies_of_a_mix(tmp_path: Path) -> None:
    text = "op,iops,p99_us,write_p99_us\nrandrw:70,1000,90,40\n"
    (m,) = read_text(text, tmp_path).measurements
    assert m.ops["read"].clat is None
    assert m.ops["write"].clat.percentiles_s == pytest.approx({99.0: 40e-6})
    assert m.mixed.clat.percentiles_s == pytest.approx({99.0: 90e-6})
    assert m.warnings[0].startswith("the latencies of a mix")


@pytest.mark.parametrize(
    ("column", "value", "iops"),
    [("bw_mb_s", 6800, 51879.9), ("bw_mib_s", 6400, 51200), ("bw_gb_s", 6.8, 51879.9)],
)
def test_a_bandwidth_is_a_rate(column: str, value: float, iops: float, tmp_path: Path) -> None:
    text = f"op,block_size,jobs,iodepth,{column}\nread,128 KiB,1,32,{value}\n"
    assert read_text(text, tmp_path).measurements[0].ops["read"].iops == pytest.approx(iops)


@pytest.mark.parametrize("column", ["read_pct", "rwmixread"])
def test_the_share_of_reads_has_a_column(column: str, tmp_path: Path) -> None:
    text = f"op,block_size,iops,{column}\nrandrw,4k,1000,70\nrandread,4k,1000,\nrw:30,4k,9,30\n"
    capture = read_text(text, tmp_path)
    shares = [m.conditions.read_fraction for m in capture.measurements]
    assert shares == [0.7, 1.0, 0.3]
    assert [m.label for m in capture.measurements] == ["randrw:70 4 KiB", "randread 4 KiB",
                                                       "rw:30 4 KiB"]  # fmt: skip
    assert capture.measurements[0].ops["read"].iops == pytest.approx(700)
    assert capture.warnings == ()


def test_a_mix_without_a_share_is_half_and_half_and_says_so(tmp_path: Path) -> None:
    rows = "randread,9,\nrandrw,9,\nrandrw,9,0\nrw,9,\n"
    capture = read_text(f"op,iops,read_pct\n{rows}", tmp_path)
    assert [m.conditions.read_fraction for m in capture.measurements] == [1, 0.5, 0, 0.5]
    (said,) = capture.warnings
    assert "2 of 4 rows, the first in line 3" in said


@pytest.mark.parametrize("row", ["randread,5,70", "randrw:70,5,60", "write,5,100"])
def test_a_share_that_contradicts_the_operation_is_refused(row: str, tmp_path: Path) -> None:
    said = refused(f"op,iops,read_pct\n{row}\n", tmp_path)
    assert re.match("line 2: op is .* and read_pct", said)


def test_an_unknown_column_is_said(tmp_path: Path) -> None:
    capture = read_text("op,iops,temperature\nread,5,7\n", tmp_path)
    (said,) = capture.warnings
    assert (said.code, "'temperature'" in said) == ("unknown-column", True)
    for name, meant in (("lat_mean_kg", "lat_mean_us"), ("latency_kg", "lat_mean_us"),
                        ("read lat p99 kg", "read_lat_p99_us")):  # fmt: skip
        (said,) = read_text(f"op,iops,{name}\nread,5,7\n", tmp_path).warnings
        assert (said.code, f"'{meant}'" in said) == ("unknown-column", True)


def test_a_latency_in_seconds(tmp_path: Path) -> None:
    capture = read_text("op,iops,lat_p99_s,lat_mean_us\nread,5,0.004,0.003 s\n", tmp_path)
    (one,) = capture.measurements
    assert one.ops["read"].lat is not None
    assert one.ops["read"].lat.percentiles_s[99.0] == pytest.approx(0.004)
    assert one.ops["read"].lat.mean_s == pytest.approx(0.003)


ALIKE = """op,block_size,jobs,iodepth,iops,lat_mean_us,p99_us
randread,4 KiB,4,32,640000,198,410
"""


@pytest.mark.parametrize(
    "text",
    [
        "rw,bs,threads,qd,kiops,avg_lat_us,p99us\nrandread,4k,4,32,640,198,410\n",
        "Mode,Block Size,NumJobs,Queue Depth,IOPS,lat avg (ms),p99\n"
        "random read,4k,4,32,640k,0.198,410us\n",
        "pattern;blocksize;workers;depth;iops;lat_mean;p99 (us)\n"
        "rand_read;4096;4;32;640000;198 us;0,41 ms\n",
    ],
)
def test_columns_as_people_call_them(text: str, tmp_path: Path) -> None:
    (asked,), (found,) = (read_text(t, tmp_path).measurements for t in (ALIKE, text))
    assert found.conditions == asked.conditions
    asked_read, read = asked.ops["read"], found.ops["read"]
    assert read.iops == asked_read.iops
    assert read.lat.mean_s == pytest.approx(asked_read.lat.mean_s)
    assert read.clat.percentiles_s == pytest.approx(asked_read.clat.percentiles_s)
    assert read_text(text, tmp_path).warnings == ()


def test_a_latency_without_a_unit_is_said(tmp_path: Path) -> None:
    capture = read_text("op,iops,mean\nread,5,58\nread,5,58us\n", tmp_path)
    assert [m.ops["read"].clat.mean_s for m in capture.measurements] == pytest.approx([58e-6] * 2)
    assert [w.code for w in capture.warnings] == ["no-unit"]


def test_every_spelling_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/calibrate.md").read_text()
    for name, others in points_columns.SPELLINGS.items():
        assert f"| `{name}` | {', '.join(others)} |" in page


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("randread,4k,1,1,", "line 2: has no iops; give iops, or lat_mean_us with jobs"),
        (",4k,1,1,5", "line 2: has no op; write randread"),
        ("fast,4k,1,1,5", "line 2: op is 'fast'"),
        ("randread:70,4k,1,1,5", "line 2: op is 'randread:70'"),
        ("randrw:170,4k,1,1,5", "line 2: op is 170, more than 100"),
        ("randread,4q,1,1,5", "line 2: block_size: '4q'"),
        ("randread,0,1,1,5", "line 2: block_size is 0 B"),
        ("randread,4k,0,1,5", "line 2: jobs is 0; write a whole number"),
        ("randread,4k,1,1.5,5", "line 2: iodepth is 1.5; write a whole number"),
        ("randread,4k,1,1,-5", "line 2: iops is -5, negative"),
        ("randread,4k,1,1,nan", "line 2: iops is NaN"),
        ("randread,4k,1,1,1e99", "line 2: iops is 1e99, more than"),
        ("randread,4k,1,1,0", "line 2: iops is 0; leave"),
        ("randread,4k,1,1,many", "line 2: iops is 'many', not a number"),
        ("randread,4k,1,1", "line 2 has 4 cells, the header 5"),
        ('randread,4k,1,1,"5', "line 2 is not a row of a CSV"),
        ("randread,1000 B,1,1,5", "line 2: block_size is 1000 B, 1,000 bytes; drives count in bi"),
        ("", "line 1: has a header and no points"),
    ],
)
def test_cells_that_cannot_be(row: str, found: str, tmp_path: Path) -> None:
    assert refused(f"op,block_size,jobs,iodepth,iops\n{row}\n", tmp_path).startswith(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("op,iops,iops\nread,1,1\n", "line 1: column 'iops' occurs twice"),
        ("op,iops,bs,block_size\nread,1,4k,4k\n", "line 1: columns 'bs' and 'block_size' say"),
        ("op,iops,p99_us,clat_p99_us\nread,1,4,4\n", "line 1: columns 'p99_us' and 'clat_p99_us'"),
        ("op,iosp,lat_mean_us\nread,1,4\n", "line 1: column 'iosp' is not known; is iops meant"),
        ("op,iops,lat_maen_us\nread,1,4\n", "is lat_mean_us meant"),
        ("op,qd,iops,hot\n,1,5,7\n", "line 2: has no op; column 'hot' is not known"),
        ("op,iops,p50_us,p99_us\nread,1,9,8\n", "line 2: the percentiles of clat decrease"),
        ("op,iops,p50_us\nread,1,0\n", "line 2: p50_us is 0; leave the cell blank"),
        ("name,iops\na,1\n", "columns are not those of points"),
        # what two cells say of each other
        (RATE_AND_LATENCY + "200\n", "line 2: lat_mean_us: .*12,500 IOPS at 200 us .* 80 us"),
        (RATE_AND_LATENCY + "0.08\n", "line 2: lat_mean_us: .*is it in milliseconds"),
        (RATE_AND_LATENCY + "80000\n", "line 2: lat_mean_us: .*a thousand times too long"),
        (
            BANDWIDTH + "128 KiB,25000,3125\n",
            r"line 2: bw_mb_s.*are 3,276\.8, not 3,125; is it bw_mib_s\?",
        ),
        (
            BANDWIDTH + "128 KiB,25000,1277\n",
            "line 2: bw_mb_s.*not 1,277; keep the one that was measured",
        ),
        (BANDWIDTH + ",25000,3125\n", "line 2: bw_mb_s without block_size"),
        (BANDWIDTH + "128 KiB,25000,0\n", "line 2: bw_mb_s is 0"),
    ],
)
def test_tables_that_cannot_be(text: str, found: str, tmp_path: Path) -> None:
    assert re.search(found, refused(text, tmp_path))


LOADS = """name,op,block_size,jobs,drives,iops,rate,arrivals,limit,sync,raid,cpu_us,beside,\
device_times,filesystem,guest
load,randwrite,4k,6,1,5000,5000,poisson,384,,,,,,,
probe,randrw:50,4k,1,1,10000,10000,fixed,64,,,,load,,raw,none
,randwrite,16k,4,2,23949,,,,,raid0:512 KiB,15.4,,,xfs,
,randwrite,16k,1,1,2100,,,,fdatasync,,25,,1,EXT4,kvm-virtio
"""


def test_a_thread_of_a_synchronous_engine_has_one_request_in_flight(tmp_path: Path) -> None:
    rows = ("psync", 32, 1), ("libaio", 32, 32), ("pvsync2", 1, 1), ("mmap", 8, 1), ("", 8, 8)
    text = "op,block_size,jobs,iodepth,iops,engine\n" + "".join(
        f"randread,4k,4,{asked},9000,{engine}\n" for engine, asked, _ in rows
    )
    capture = read_text(text, tmp_path)
    assert [m.conditions.iodepth for m in capture.measurements] == [kept for *_, kept in rows]
    assert sum("2 of 5 rows" in w and "line 2" in w for w in capture.warnings) == 1


def test_a_row_states_its_load(tmp_path: Path) -> None:
    first, probe, array, synced = (m.conditions for m in read_text(LOADS, tmp_path).measurements)
    assert (first.offered_iops, first.arrivals, first.most_outstanding) == (5000, "poisson", 384)
    assert (probe.beside, probe.arrivals) == ("load", "fixed")
    assert (array.raid, array.targets) == ("raid0:524288", 2)
    assert (synced.sync, synced.device_times, synced.raid) == ("fdatasync", True, None)
    paths = [(c.filesystem, c.guest) for c in (first, probe, array, synced)]
    assert paths == [(None, None), ("raw", "none"), ("xfs", None), ("ext4", "kvm-virtio")]
    uses = [m.cpu and m.cpu.total_pct for m in read_text(LOADS, tmp_path).measurements]
    assert uses == [None, None, pytest.approx(23949 * 15.4e-4), pytest.approx(2100 * 25e-4)]


@pytest.mark.parametrize(
    ("column", "cell"),
    [("arrivals", "often"), ("sync", "always"), ("raid", "raid9"), ("raid", "raid0:x"),
     ("polled", "yes"), ("device_times", "2"), ("filesystem", "zfs"), ("guest", "xen")],
)  # fmt: skip
def test_a_load_that_is_not_known_names_its_column(tmp_path: Path, column: str, cell: str) -> None:
    said = refused(f"op,block_size,iops,{column}\nrandread,4k,1000,{cell}\n", tmp_path)
    assert said.startswith((f"line 2: {column} is", f"line 2: {column}: "))


def test_a_table_in_markdown_is_one_of_points(tmp_path: Path) -> None:
    """Words tell the load, cells have units and thousands, prose and other tables stand around."""
    text = """# Results

| CPU | cores |
|-----|-------|
| x   | 4     |

| Arm | IOPS | MB/s | mean µs | p99 |
|:--|--:|--:|--:|--:|
| **4k QD1 randread** | 1,400 | **5.7** | 710 | 1.1ms |
| 128k seq 7:3 QD8T2 | 1.5k | 196.6 | | n/a |

and with `bs=64k`:

Test | Block Size | I/O Depth | Bandwidth
--- | --- | --- | ---
rand_wr | 64 KiB | 16 | 100 MiB/s
"""
    first, mix, write = (m.conditions for m in read_text(text, tmp_path).measurements)
    assert (first.access, first.block_size, first.jobs, first.iodepth) == ("random", 4096, 1, 1)
    assert (mix.access, mix.read_fraction, mix.jobs, mix.iodepth) == ("sequential", 0.7, 2, 8)
    assert (write.read_fraction, write.block_size, write.iodepth) == (0.0, 65536, 16)
    read, _, slow = (m.ops.get("read") or m.ops["write"]
                     for m in read_text(text, tmp_path).measurements)  # fmt: skip
    assert (read.iops, read.lat.mean_s if read.lat else read.clat.mean_s) == (1400, 710e-6)
    assert read.clat.percentiles_s == pytest.approx({99.0: 1.1e-3})
    assert slow.iops == pytest.approx(1600)


def test_cells_of_markdown_may_say_what_they_are(tmp_path: Path) -> None:
    """A column of results has rates and bandwidths; a process of iozone has one in flight."""
    text = """| Test | Result |
| --- | --- |
| 4k random write, QD16 | ~90k IOPS |
| iozone 1M sequential read | 524.288 MB/s |
| 4k random read | see below |
"""
    write, read = read_text(text, tmp_path).measurements
    assert (write.conditions.iodepth, write.ops["write"].iops) == (16, 90_000)
    assert (read.conditions.outstanding, read.ops["read"].iops) == (1, 500)


def test_a_table_in_markdown_that_names_no_operation_is_refused(tmp_path: Path) -> None:
    assert "line 3: has no op" in refused("|depth|IOPS|\n|--|--|\n|8|10.2k|\n", tmp_path)


def test_times_of_iometer_in_markdown_are_milliseconds(tmp_path: Path) -> None:
    text = (
        "|Name|IOps|Average Response Time|Queue Depth|\n|--|--|--|--|\n|4k rand read|10000|0.8|8|\n"
    )
    (m,) = read_text(text, tmp_path).measurements
    assert m.ops["read"].lat.mean_s == pytest.approx(0.8e-3)
