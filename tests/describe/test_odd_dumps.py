"""Dumps that are odd but real, and those of other tools, cut, contradictory or broken.

What is read, what is supposed, what is refused in one line.
"""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path

import pytest

from nvmesim.describe import describe
from nvmesim.errors import InputError
from tests.describe import dumps_of_servers as made

DATA = Path(__file__).parent / "data"
LSTOPO = made.lstopo([made.lstopo_drive("nvme0n1", "0000:01:00.0", "X")])
NINES = "9" * 5000
"""Python converts no number of more than 4,300 digits."""


def text_of(tmp_path: Path, *dumps: str) -> str:
    files = []
    for number, dump in enumerate(dumps):
        file = tmp_path / f"dump{number}"
        file.write_text(dump, encoding="utf-8")
        files.append(file)
    return describe(files)


def said_of(tmp_path: Path, *dumps: str) -> str:
    return " ".join(text_of(tmp_path, *dumps).replace("#", "").split())


def refusal(tmp_path: Path, *dumps: str) -> str:
    with pytest.raises(InputError) as caught:
        text_of(tmp_path, *dumps)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.mark.parametrize(
    "dump",
    [
        f'{{"Devices": {NINES}}}',
        made.nvme("01:00.0").replace("x4", f"x{NINES}"),
        made.nvme("01:00.0").replace("NUMA node: 0", f"NUMA node: {NINES}"),
        "Personalities : [raid5]\n"
        f"md0 : active raid5 a[{NINES}] b[1]\n      8 blocks\n\nunused devices: <none>\n",
    ],
)
def test_numbers_that_python_does_not_convert(tmp_path: Path, dump: str) -> None:
    assert "holds a number that cannot be read" in refusal(tmp_path, dump)


@pytest.mark.parametrize("name", ["²", f"nvme{NINES}n1"])
def test_names_of_odd_digits_are_sorted(tmp_path: Path, name: str) -> None:
    drives = [(name, "X", 10**12), ("nvme2n1", "X", 10**12)]
    tables = tomllib.loads(text_of(tmp_path, made.nvme_list(drives)))
    assert sum(drive["count"] for drive in tables["drives"]) == 2


MDSTAT = """Personalities : [raid5]
md0 : active raid5 nvme2n1[2] nvme1n1[1] nvme0n1[0]
      1000 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/3] [UUU]

md1 : inactive nvme3n1[0](S)
      1000 blocks

unused devices: <none>
"""


def test_arrays_that_do_not_run_are_left_out(tmp_path: Path) -> None:
    assert "md1 is inactive and left out" in said_of(tmp_path, MDSTAT)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("unused devices: <none>", "", "is cut: the line 'unused devices' is missing"),
        (" : active raid5", " : moving raid5", "has the line 'md0 : moving raid5"),
        ("      1000 blocks super", "", "is cut: md0 has no members or no size"),
        ("nvme0n1[0]", "md9[0]", "has md9 as a member; arrays of arrays are not modelled"),
    ],
)
def test_mdstat_that_cannot_be(tmp_path: Path, old: str, new: str, found: str) -> None:
    assert found in refusal(tmp_path, MDSTAT.replace(old, new))


def test_raid10_of_mdstat_has_its_copies(tmp_path: Path) -> None:
    far = MDSTAT.replace("raid5 ", "raid10 ").replace(
        "level 5, 64k chunk, algorithm 2", "64K chunks 2 far-copies"
    )
    assert tomllib.loads(text_of(tmp_path, far))["volume"]["layout"] == "far2"


DETAIL = (DATA / "mdadm_detail_raid5_clean.txt").read_text()


def test_detail_that_cannot_be(tmp_path: Path) -> None:
    assert "Raid Devices is '0'" in refusal(
        tmp_path, DETAIL.replace("Raid Devices : 4", "Raid Devices : 0")
    )
    assert "has no level or no number of devices" in refusal(
        tmp_path, DETAIL.replace("Raid Level", "Raid Lev")
    )


def test_sata_members(tmp_path: Path) -> None:
    sata = MDSTAT.replace("nvme", "sd").replace("n1[", "[")
    said = said_of(tmp_path, sata)
    assert "sd0 is taken to be a SATA drive" in said


def test_numbers_and_nodes_of_lscpu_as_json(tmp_path: Path) -> None:
    entries = [
        {"field": line.split(":")[0] + ":", "data": line.split(":", 1)[1].strip()}
        for line in made.XEON.strip().split("\n")
    ]
    nested = [entries[0] | {"children": entries[1:3]}, "a word", *entries[3:]]
    drive = made.nvme("01:00.0")
    assert text_of(tmp_path, json.dumps({"lscpu": nested}), drive).replace("-J", "") == text_of(
        tmp_path, json.dumps({"lscpu": entries}), drive
    ).replace("-J", "")
    clusters = made.XEON.replace("Socket(s):           2", "Core(s) per cluster: 4")
    assert "describes clusters, not sockets" in refusal(tmp_path, clusters)


def test_nvme_lists_that_are_none(tmp_path: Path) -> None:
    assert "has no list of devices" in refusal(tmp_path, '{"Devices": {"a": 1}}')
    assert "names no CPU, drive" in refusal(tmp_path, '{"Devices": [1, {"a": 2}]}')


def test_namespaces_beside_their_controllers(tmp_path: Path) -> None:
    """nvme-cli 2 lists the namespaces of a multipath drive at the subsystem."""
    table = json.loads(made.nvme_list([("nvme0n1", "X", 10**12)], ["0000:01:00.0"]))
    subsystem = table["Devices"][0]["Subsystems"][0]
    subsystem["Namespaces"] = subsystem["Controllers"][0].pop("Namespaces")
    tables = tomllib.loads(text_of(tmp_path, json.dumps(table)))
    assert tables["drives"][0]["count"] == 1


def test_more_controllers_than_drives(tmp_path: Path) -> None:
    lspci = made.nvme("01:00.0") + made.nvme("02:00.0")
    said = said_of(tmp_path, lspci, made.nvme_list([("nvme0n1", "X", 10**12)]))
    assert "1 NVMe controllers have no drive in the list and are left out" in said


def test_a_catalog_cpu_that_was_changed(tmp_path: Path) -> None:
    smaller = made.XEON.replace("socket:  16", "socket:  12")
    said = said_of(tmp_path, smaller, made.nvme("01:00.0"))
    assert "xeon-gold-6130 as seen, not as sold: cores 12" in said
    wide = "".join(made.nvme(f"{n:02x}:00.0") for n in range(16, 36))
    assert "lanes 80" in said_of(tmp_path, made.XEON, wide)


def test_an_unknown_cpu_of_amd(tmp_path: Path) -> None:
    unknown = made.XEON.replace("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "AMD EPYC 1A2B")
    cpu = tomllib.loads(text_of(tmp_path, unknown, made.nvme("01:00.0")))["server"]["sockets"][0][
        "cpu"
    ]
    assert (cpu["interconnect"], cpu["ghz"]) == ("xgmi", 2.5)


def test_a_guest_says_so(tmp_path: Path) -> None:
    guest = made.XEON + "Hypervisor vendor:   KVM\n"
    assert "lscpu ran in a guest" in said_of(tmp_path, guest, made.nvme("01:00.0"))


def test_lstopo_without_what_it_needs(tmp_path: Path) -> None:
    drive = made.lstopo_drive("nvme0n1", "0000:01:00.0", "X")
    whole = made.lstopo([drive])
    assert "has a Package without PUs" in refusal(tmp_path, whole.replace('"PU"', '"Pu"'))
    assert "has no Package" in refusal(tmp_path, whole.replace('"Package"', '"Pack"'))
    nameless = whole.replace("CPUModel", "Model")
    assert "unknown CPU" in said_of(tmp_path, nameless)
    other = whole.replace("0108 [144d", "0200 [144d")  # a network card beside
    assert "no dump names one" in said_of(tmp_path, other)


def test_sata_disks_on_the_chipset(tmp_path: Path) -> None:
    disk = (
        '<object type="OSDev" name="{}" osdev_type="0"><info name="Size" value="937684566"/>'
        '<info name="SectorSize" value="512"/><info name="Model" value="SSD"/></object>'
    )
    card = (
        '<object type="PCIDev" pci_busid="0000:00:17.0" pci_type="0106 [8086:a182] [1028:06b9] 09" '
        f'pci_link_speed="0.000000">{disk.format("sda")}{disk.format("nvme0n1")}</object>'
    )
    tables = tomllib.loads(text_of(tmp_path, made.lstopo([card])))
    assert tables["drives"][0]["profile"]["extends"] == "sata-ssd"
    assert "adapters" not in tables
    assert sum(drive["count"] for drive in tables["drives"]) == 1


def test_links_between_epycs_take_lanes_of_their_own(tmp_path: Path) -> None:
    """128 lanes less the 64 that join two sockets: a dump of 80 in use proves another board."""
    epyc = made.XEON.replace("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "AMD EPYC 7763 64-Core")
    epyc = epyc.replace("socket:  16", "socket:  64")
    drives = "".join(made.nvme(f"{n:02x}:00.0") for n in range(16, 36))
    cpu = tomllib.loads(text_of(tmp_path, epyc, drives))["server"]["sockets"][0]["cpu"]
    assert cpu == {"extends": "epyc-7763", "lanes": 144}


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
        ("架构\uff1a   x86_64\nCPU:   64\n", "LC_ALL=C lscpu"),
        ("Architecture\u00a0:   x86_64\nSocket(s)\u00a0:   2\n", "not in English"),
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
    assert said in refusal(tmp_path, dump)


def test_cut_array_is_refused(tmp_path: Path) -> None:
    whole = (DATA / "mdadm_detail_raid5_clean.txt").read_text()
    assert "lists 3 of 4 devices" in refusal(tmp_path, whole[: whole.rindex("       4")])


def test_dumps_of_different_servers_are_refused(tmp_path: Path) -> None:
    other = made.XEON.replace("socket:  16", "socket:  8")
    one = refusal(tmp_path, made.XEON, other, made.nvme("01:00.0"))
    assert "dump0 (lscpu) says 2 sockets of 16 cores, dump1 (lscpu) 2 of 8" in one
    assert "NUMA node 5" in refusal(tmp_path, made.XEON, made.nvme("01:00.0", node=5))


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
