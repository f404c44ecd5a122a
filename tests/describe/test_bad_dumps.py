"""Dumps of other tools, cut, contradictory or broken: one line, never a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nvmesim.describe import describe
from nvmesim.errors import InputError
from tests.describe import dumps_of_servers as made

DATA = Path(__file__).parent / "data"
LSTOPO = made.lstopo([made.lstopo_drive("nvme0n1", "0000:01:00.0", "X")])


def problem(tmp_path: Path, *dumps: str) -> str:
    """Return the error that *dumps* cause."""
    files = []
    for number, dump in enumerate(dumps):
        file = tmp_path / f"dump{number}"
        file.write_text(dump, encoding="utf-8")
        files.append(file)
    with pytest.raises(InputError) as caught:
        describe(files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("mdadm_detail_raid5_export.txt", "give mdadm --detail"),
        ("mdadm_examine.txt", "give mdadm --detail"),
        ("nvme_smart_log.json", "give nvme list -o json"),
        ("nvme_id_ctrl.txt", "give nvme list -o json"),
        ("lsblk.txt", "give lsblk -J"),
        ("lspci_tv.txt", "give lspci -vv"),
        ("lscpu_p.txt", "give lscpu -J"),
        ("numactl_H.txt", "give lstopo --of xml"),
    ],
)
def test_other_tools_are_named(sample: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        describe([DATA / sample])


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("", "is empty"),
        ("hello\n", "is not a dump that nvmesim knows"),
        ("Arkkitehtuuri:   x86_64\nSuorittimia:   4\n", "LC_ALL=C lscpu"),
        ("Architektur:   x86_64\nCPU(s):   4\n", "LC_ALL=C lscpu"),
        (made.XEON.split("Socket")[0], "sockets, cores or threads per core are missing"),
        (made.XEON.replace("Socket(s):           2", "Socket(s):           -"), "not a number"),
        (made.nvme("01:00.0").split("\t\tLnkSta")[0], "has no link status"),
        ('{"Devices": [', "cut or broken JSON"),
        ('{"Devices": []}', "names no CPU, drive or array"),
        ('{"Device": 1, "FriendlyName": 2, "MediaType": "SSD"}', "a list of disks from Windows"),
        ('{"Devices": ' + "[" * 9_000, "cut or broken JSON"),
        (LSTOPO[:900], "cut or broken XML"),
        (LSTOPO.replace('"hwloc2.dtd">', '"x" [<!ENTITY a "b">]>'), "declares entities"),
        (LSTOPO.replace("<topology", "<object>" * 100 + "<topology", 1), "nested too deeply"),
        ("Personalities : [raid5]\nmd0 : active raid5 a[0]\n", "is cut"),
        ("Personalities : [raid5]\nunused devices: <none>\n", "names no CPU, drive or array"),
        (
            "Personalities : [linear]\nmd0 : active linear sda[0]\n      8 blocks\n\n"
            "unused devices: <none>\n",
            "does not model",
        ),
    ],
)
def test_bad_dumps_are_said_in_one_line(tmp_path: Path, dump: str, said: str) -> None:
    assert said in problem(tmp_path, dump)


def test_cut_array_is_refused(tmp_path: Path) -> None:
    whole = (DATA / "mdadm_detail_raid5_clean.txt").read_text()
    assert "lists 3 of 4 devices" in problem(tmp_path, whole[: whole.rindex("       4")])


def test_dumps_of_different_servers_are_refused(tmp_path: Path) -> None:
    other = made.XEON.replace("socket:  16", "socket:  8")
    one = problem(tmp_path, made.XEON, other, made.nvme("01:00.0"))
    assert "dump0 (lscpu) says 2 sockets of 16 cores, dump1 (lscpu) 2 of 8" in one
    assert "NUMA node 5" in problem(tmp_path, made.XEON, made.nvme("01:00.0", node=5))


def test_no_file_and_missing_file() -> None:
    with pytest.raises(InputError, match="no file is named"):
        describe([])
    with pytest.raises(InputError, match="No such file"):
        describe(["/nonexistent/lscpu.txt"])


@pytest.mark.parametrize("sample", sorted(file.name for file in DATA.iterdir()))
def test_damaged_samples_never_fail_otherwise(tmp_path: Path, sample: str) -> None:
    """Cut, repeated and changed bytes end in a scenario or in an InputError."""
    whole = (DATA / sample).read_bytes()
    chance = random.Random(sample)
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(1, 40)] = chance.choice(
                [b"", b"-", b"9" * 30, b"\x00", b"[0]", b"\n", bytes(data[:20]), b"Width x7"]
            )
        file = tmp_path / sample
        file.write_bytes(bytes(data[: chance.randrange(1, len(data) + 1)]))
        try:
            describe([file, DATA / "nvme_list.json"])
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
