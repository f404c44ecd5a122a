"""Files of retired formats: recognised by their content, refused in one line with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.capture.text import Source
from nvmesim.capture.unrecognised import what_else
from nvmesim.errors import CaptureError

DATA = Path(__file__).parent / "data" / "retired"
SAMPLES = {
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
    "arrivals of MQSim": "".join(f"{1000 * i} 0 {8 * i} 16 {i % 2}\n" for i in range(20)),
}


@pytest.mark.parametrize(("sample", "name"), SAMPLES.items())
def test_a_sample_is_refused_with_what_to_do(sample: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.dat"
    shutil.copy(DATA / sample, path)
    found = what_else(Source(path).head)
    assert found.text.startswith(f"is of {name}, ")
    with pytest.raises(CaptureError) as caught:
        read_capture(path)
    assert found.instead in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_a_text_is_refused(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.dat"
    path.write_text(text)
    with pytest.raises(CaptureError, match=f"is of {name}, which nvmesim does not read any more"):
        read_capture(path)
