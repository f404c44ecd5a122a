"""Files that people give that are not captures: one line says what they are and what would do."""

import re
import time
import tomllib
from pathlib import Path

import pytest

from nvmesim.capture.registry import READERS, read_capture
from nvmesim.capture.text import HEAD_BYTES, Source
from nvmesim.capture.unrecognised import what_else
from nvmesim.errors import CaptureError
from tests.capture.contract import DATA, refused, written
from tests.fuzz.mutate import RUNS

FILES = tomllib.loads((DATA / "unrecognised" / "files.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_it_says_what_the_file_is(name: str, tmp_path: Path) -> None:
    assert re.search(FILES[name]["says"], refused(FILES[name]["text"], tmp_path))


def test_the_list_of_formats_has_every_reader() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "capture.md").read_text()
    rows = [line.split("|")[1] for line in text.split("\n") if line.startswith("| `")]
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(rows))) == sorted(r.name for r in READERS)


# Formats that are not read any more: recognised by their content, refused with what to do


SAMPLES = {
    "blkparse_fmt_commaspace.txt.gz": "blkparse -f",
    "blkparse_fmt_csv.txt.gz": "blkparse -f",
    "blkparse_fmt_fields.txt.gz": "blkparse -f",
    "elbencho.txt": "elbencho's table",
    "summary.html": "vdbench's summary.html",
    "hist_clat_hist.1.log": "fio's histogram log (write_hist_log)",
    "rr_gz_clat.1.log.fz": "fio's compressed log (log_store_compressed)",
    "batch.csv": "esxtop -b",
    "jobs.txt": "kubestr",
    "kbench.md": "kbench",
    "two_scrapes.txt": "node_exporter",
    "v1.vscsi": "vSCSI",
    "v2.lcs": "LCS of libCacheSim",
    "v2.vscsi": "vSCSI",
    "write_seq.txt": "rados bench",
    "xperf.csv": "xperf -a dumper",
}
TEXTS = {
    "nvme events of ftrace alone": " fio-543 [000] 163.339048: nvme_setup_cmd: nvme3: qid=1\n",
    "histograms as JSON (bpftrace -f json, biolatency -j)": (
        '{"type": "hist", "data": {"@lat_ns": {"nvme0n1": [{"min": 1, "max": 2, "count": 40}]}}}\n'
    ),
    "iostat whose header a mail program broke": "Device r/s w/s rkB/s\n%rrqm r_await %util\n",
    "a replayer's trace": "".join(f"{i}.5,0,{4096 * i},8192,{i % 2}\n" for i in range(20)),
    "arrivals of MQSim": "".join(f"{1000 * i} 0 {8 * i} 16 {i % 2}\n" for i in range(20)),
}


@pytest.mark.parametrize(("sample", "name"), SAMPLES.items())
def test_a_retired_sample_is_refused_with_what_to_do(
    sample: str, name: str, tmp_path: Path
) -> None:
    data = (DATA / "retired" / sample).read_bytes()
    path = written(tmp_path / "capture.dat", data)
    found = what_else(Source(path).head)
    assert found.text.startswith(f"is of {name}, ")
    with pytest.raises(CaptureError) as caught:
        read_capture(path)
    assert found.instead in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_a_retired_text_is_refused(name: str, text: str, tmp_path: Path) -> None:
    assert f"is of {name}, which nvmesim does not read any more" in refused(text, tmp_path)


LONGEST_S = 3.0
"""CPU time that no reader needs to look at a head: linear patterns take milliseconds, quadratic
ones took 5 to 90 s."""


@pytest.mark.parametrize("before", ["", "1.1 ", "[server]\n[", "block_rq_ nvme_ "])
@pytest.mark.parametrize("run", RUNS, ids=repr)
def test_every_reader_looks_at_it_in_no_time(run: bytes, before: str, tmp_path: Path) -> None:
    """A page of one thing is no capture, and told so at once: no pattern may be quadratic."""
    page = before.encode() + run * (HEAD_BYTES // len(run))
    head = Source(written(tmp_path / "page.txt", page)).head
    for look in (*(reader.sniff for reader in READERS), what_else):
        began = time.process_time()
        look(head)
        assert time.process_time() - began < LONGEST_S, look
