"""fio's and DiskSpd's words have one home: a load and a capture read the same from a text."""

from __future__ import annotations

import pytest

from nvmesim.capture.readers.diskspd.options import command_targets
from nvmesim.capture.readers.fio.options import Options
from nvmesim.errors import ScenarioError
from nvmesim.scenario.loads import diskspd, fio_job

JOBS = [
    {"rw": "randread", "bs": "4k", "ioengine": "libaio", "iodepth": "16"},
    {"rw": "randrw", "bs": "4k,64k", "rwmixread": "70", "iodepth": "4", "ioengine": "io_uring"},
    {"rw": "rw", "rwmixread": "70", "rwmixwrite": "60", "iodepth": "8"},
    {"rw": "randwrite", "bssplit": "4k/60:64k/40", "ioengine": "libaio", "iodepth": "2"},
    {"rw": "randread", "bssplit": "4k/50:8k:16k", "ioengine": "mmap", "iodepth": "9"},
    {"rw": "write", "bs": "0x2000", "filename": "/dev/nvme0n1:/dev/nvme1n1"},
    {"rw": "randread", "bs": "512k", "kb_base": "1024"},
]


@pytest.mark.parametrize("options", JOBS)
def test_a_job_and_its_result_mean_the_same(options: dict[str, str]) -> None:
    (load,) = fio_job.parse("[a]\n" + "".join(f"{k}={v}\n" for k, v in options.items()))
    found = Options(options)
    fields = load.fields
    assert found.read_fraction() == pytest.approx(fields["read"])
    assert found.access() == fields["access"]
    assert found.iodepth(None) == fields["outstanding"]
    op = "read" if fields["read"] else "write"
    assert found.block_sizes(op) == pytest.approx(dict(fields["block_sizes"]))
    if fields["write_block_sizes"]:
        assert found.block_sizes("write") == pytest.approx(dict(fields["write_block_sizes"]))
    assert (found.filenames() or ()) == load.files


def test_thousands_are_thousands_with_kb_base() -> None:
    with pytest.raises(ScenarioError, match="bs=4k is not a multiple of 512"):
        fio_job.parse("[a]\nkb_base=1000\nbs=4k\n")
    (load,) = fio_job.parse("[a]\nkb_base=1000\nbs=4ki\n")
    assert load.fields["block_sizes"] == ((4096, 1.0),)
    with pytest.raises(ScenarioError, match="kb_base=7 is 1024 or 1000"):
        fio_job.parse("[a]\nkb_base=7\nbs=4k\n")


@pytest.mark.parametrize(
    "line",
    [
        "-b4K -t4 -o32 -w30 -r -Su -d10 a.dat",
        "diskspd.exe -b64K -t2 -w100 C:\\a.dat D:\\b.dat",
        "-b1M a.dat",
        "/b8K /t3 /o5 /r #1",
    ],
)
def test_a_command_line_means_the_same_in_a_result(line: str) -> None:
    load = diskspd.parse(line)
    fields = load.fields
    targets = command_targets(line if line.startswith("diskspd") else f"diskspd {line}")
    assert tuple(target.path for target in targets) == load.files
    for target in targets:
        assert ((target.block_size, 1.0),) == fields["block_sizes"]
        assert (target.outstanding, target.threads) == (fields["outstanding"], fields["threads"])
        assert target.write_pct == pytest.approx(100 * (1 - fields["read"]))
        assert target.random is (fields["access"] == "random")
