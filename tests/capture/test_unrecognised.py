"""Files that people give that are not captures: one line says what they are and what would do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nvmesim.capture.registry import READERS, read_capture
from nvmesim.errors import CaptureError

FILES = {
    "fio's summary": (
        "Run status group 0 (all jobs):\n   READ: bw=12.8GiB/s (13.7GB/s), io=768GiB (825GB)\n",
        "a part of fio's report.*copy the whole report",
    ),
    "fio's banner": (
        "a: (g=0): rw=read, bs=(R) 4096B-4096B, ioengine=sync, iodepth=1\nfio-3.38\n",
        "ends before fio's report.*give the whole output",
    ),
    "fio's progress": ("Jobs: 1 (f=1): [W(1)][9.0%][w=18.4MiB/s]\n", "ends before fio's report"),
    "a part of fio's JSON": ('      "clat_ns" : {\n        "min" : 5\n', "a part of fio's JSON"),
    "blktrace at its end": (
        "=== md0 ===\n  CPU  0:                  496 events,       24 KiB data\n",
        "what blktrace says at its end.*NAME.blktrace.0",
    ),
    "diskstats": (
        "   8       0 sda 1234 5 6789 10 11 12 13 14 0 15 16 0 0 0 0\n",
        "/proc/diskstats.*iostat -x -t 1",
    ),
    "mpstat": (
        "Linux 5.14.0 (n1) \t03/01/2024 \t_x86_64_\t(32 CPU)\n\n10:00:01 AM  CPU    %usr\n",
        "without the table of devices; run sar -d",
    ),
    "vmstat": ("procs -----------memory----------\n r  b   swpd\n", "vmstat"),
    "nmon": ("AAA,progname,nmon_x86_64\nAAA,command,nmon -f\n", "nmon"),
    "dstat": ('"pcp-dstat 5.3.1 CSV Output"\n"Author:"\n', "dstat"),
    "perfmon": (
        '"(PDH-CSV 4.0) (UTC)(0)","\\\\S\\PhysicalDisk(0 C:)\\Disk Reads/sec"\n',
        "Performance Monitor's log.*diskspd -L -Rxml",
    ),
    **{
        line.split()[0]: (f"{line}\n", "a benchmark of bandwidth or of files .*: no requests")
        for line in (
            "/dev/sda:\n Timing cached reads:   20000 MB in  1.99 s",
            "1+0 records out\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.8 s, 1.4 GB/s",
            "sysbench 1.0.20 (using system LuaJIT 2.1.0)\nFile operations:",
            "\tIozone: Performance Test of File I/O",
            "1.97,1.97,host,1,1500000000,16G,,1000,99,+++++,+++",
        )
    },
    "bitesize": (
        "     Kbytes              : count     distribution\n  4 -> 7 : 5 |*|\n",
        "histogram of sizes.*biolatency",
    ),
    "vdbench's histogram": (
        "<title>Vdbench output/histogram.html</title><pre>\nTotal response time histogram.\n",
        "vdbench's page of histograms.*flatfile.html",
    ),
    "diskspd's error": ("Can't use -t and -F at the same time!\n", "messages of a benchmark"),
    "other columns": (
        "name,ioengine,rw,bs,iodepth,ios,iops,mean_lat_ns\nrr1,libaio,randread,4k,1,1,2,3\n",
        "columns are not those of points .*op,block_size,jobs,iodepth,iops",
    ),
    "a drive's profile": (
        'kind = "drive"\nname = "mine"\n',
        "is a drive profile; a scenario names it",
    ),
    "a Parquet table": ("PAR1\x15\x04\x15\x10", "is a Parquet table"),
    "nvmesim's own result": (
        '{"nvmesim": "2.6", "schema": 1, "results": {}}\n',
        "is a result of nvmesim; give",
    ),
    "btt's text": (
        "==================== All Devices ====================\n\n  ALL  MIN  AVG  MAX  N\n",
        "is what btt made of a trace; give the trace itself",
    ),
    "a tracepoint's format": (
        "name: block_rq_issue\nID: 1083\nformat:\n\tfield:dev_t dev;\n",
        "describes a tracepoint; give the events",
    ),
    "a saved page": (
        "<!DOCTYPE html>\n<html><body>randread 4k 640k IOPS</body></html>\n",
        "is a web page; save the file itself",
    ),
    "fio's messages": (
        "fio: engine libaio not loadable\nfio: failed to load engine\n",
        "holds messages of fio and no result .*engine libaio not loadable",
    ),
    "a command that failed": (
        "blktrace: /dev/nvme0n1: Permission denied\n",
        "holds a failed command .*Permission denied",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_it_says_what_the_file_is(name: str, tmp_path: Path) -> None:
    text, expected = FILES[name]
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(CaptureError, match=expected) as caught:
        read_capture(path)
    assert "\n" not in str(caught.value)


def test_the_list_of_formats_has_every_reader() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "capture.md").read_text()
    rows = [line.split("|")[1] for line in text.split("\n") if line.startswith("| `")]
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(rows))) == sorted(r.name for r in READERS)
