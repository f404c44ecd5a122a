"""Dumps that are odd but real, and those of other tools, cut, contradictory or broken.

What is read, what is supposed, what is refused in one line.
"""

import json
import tomllib
from pathlib import Path

import pytest

from nvmesim.describe import description
from nvmesim.errors import InputError
from tests.describe import dumps_of_servers as made

DATA = Path(__file__).parent / "data"
LSTOPO = made.lstopo([made.lstopo_drive("nvme0n1", "0000:01:00.0", "X")])
MDSTAT = """Personalities : [raid5]
md0 : active raid5 nvme2n1[2] nvme1n1[1] nvme0n1[0]
      1000 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/3] [UUU]

md1 : inactive nvme3n1[0](S)
      1000 blocks

unused devices: <none>
"""
DETAIL = (DATA / "mdadm_detail_raid5_clean.txt").read_text()
NVME = made.nvme("01:00.0")
NINES = "9" * 5000  # Python converts no number of more than 4,300 digits
TOO_LONG = "holds a number that cannot be read"


def text_of(tmp_path: Path, *dumps: str) -> str:
    files = []
    for number, dump in enumerate(dumps):
        file = tmp_path / f"dump{number}"
        file.write_text(dump, encoding="utf-8")
        files.append(file)
    return description(files).text


def tables_of(tmp_path: Path, *dumps: str) -> dict:
    return tomllib.loads(text_of(tmp_path, *dumps))


def said_of(tmp_path: Path, *dumps: str) -> str:
    return " ".join(text_of(tmp_path, *dumps).replace("#", "").split())


def refusal(tmp_path: Path, *dumps: str) -> str:
    with pytest.raises(InputError) as caught:
        text_of(tmp_path, *dumps)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.mark.parametrize("name", ["²", f"nvme{NINES}n1"])
def test_names_of_odd_digits_are_sorted(tmp_path: Path, name: str) -> None:
    listed = made.nvme_list([(name, "X", 10**12), ("nvme2n1", "X", 10**12)])
    assert sum(drive["count"] for drive in tables_of(tmp_path, listed)["drives"]) == 2


def test_namespaces_beside_controllers_and_copies_of_raid10(tmp_path: Path) -> None:
    """nvme-cli 2 lists the namespaces of a multipath drive at the subsystem."""
    table = json.loads(made.nvme_list([("nvme0n1", "X", 10**12)], ["0000:01:00.0"]))
    subsystem = table["Devices"][0]["Subsystems"][0]
    subsystem["Namespaces"] = subsystem["Controllers"][0].pop("Namespaces")
    tables = tomllib.loads(text_of(tmp_path, json.dumps(table)))
    assert tables["drives"][0]["count"] == 1
    far = MDSTAT.replace("raid5 ", "raid10 ").replace(
        "level 5, 64k chunk, algorithm 2", "64K chunks 2 far-copies"
    )
    assert tomllib.loads(text_of(tmp_path, far))["volume"]["layout"] == "far2"


def test_lscpu_as_json_and_unknown_cpus(tmp_path: Path) -> None:
    entries = [
        {"field": line.split(":")[0] + ":", "data": line.split(":", 1)[1].strip()}
        for line in made.XEON.strip().split("\n")
    ]
    nested = [entries[0] | {"children": entries[1:3]}, "a word", *entries[3:]]
    one, other = (
        text_of(tmp_path, json.dumps({"lscpu": found}), NVME).replace("-J", "")
        for found in (nested, entries)
    )
    assert one == other
    unknown = made.XEON.replace("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "AMD EPYC 1A2B")
    (cpu, *_) = (s["cpu"] for s in tables_of(tmp_path, unknown, NVME)["server"]["sockets"])
    assert (cpu["interconnect"], cpu["ghz"]) == ("xgmi", 2.5)
    # 128 lanes less the 64 that join two sockets: a dump of 80 in use proves another board.
    epyc = made.XEON.replace("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "AMD EPYC 7763 64-Core")
    epyc = epyc.replace("socket:  16", "socket:  64")
    drives = "".join(made.nvme(f"{n:02x}:00.0") for n in range(16, 36))
    (cpu, *_) = (s["cpu"] for s in tables_of(tmp_path, epyc, drives)["server"]["sockets"])
    assert cpu == {"extends": "epyc-7763", "lanes": 144}


@pytest.mark.parametrize(
    ("dumps", "said"),
    [
        ([MDSTAT], "md1 is inactive and left out"),
        ([MDSTAT.replace("nvme", "sd").replace("n1[", "[")], "sd0 is taken to be a SATA drive"),
        ([NVME + made.nvme("02:00.0"), made.nvme_list([("nvme0n1", "X", 10**12)])],
         "1 NVMe controllers have no drive in the list and are left out"),
        ([made.XEON + "Hypervisor vendor:   KVM\n", NVME], "lscpu ran in a guest"),
        ([made.XEON.replace("socket:  16", "socket:  12"), NVME],
         "xeon-gold-6130 as seen, not as sold: cores 12"),
        ([made.XEON, "".join(made.nvme(f"{n:02x}:00.0") for n in range(16, 36))], "lanes 80"),
        ([LSTOPO.replace("CPUModel", "Model")], "unknown CPU"),
        ([LSTOPO.replace("0108 [144d", "0200 [144d")], "no dump names one"),  # a network card
    ],
)  # fmt: skip
def test_what_is_supposed_is_said(tmp_path: Path, dumps: list[str], said: str) -> None:
    assert said in said_of(tmp_path, *dumps)


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


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        *(((DATA / name).read_text(), f"give {tool}") for name, tool in (  # dumps of other tools
            ("mdadm_detail_raid5_export.txt", "mdadm --detail"),
            ("mdadm_examine.txt", "mdadm --detail"), ("nvme_smart_log.json", "nvme list -o json"),
            ("nvme_id_ctrl.txt", "nvme list -o json"), ("lsblk.txt", "lsblk -J"),
            ("lspci_tv.txt", "lspci -vv"), ("lscpu_p.txt", "lscpu -J"),
            ("numactl_H.txt", "lstopo --of xml"))),
        ("", "is empty"),
        ("hello\n", "is not a dump that nvmesim knows"),
        ("Arkkitehtuuri:   x86_64\nSuorittimia:   4\n", "LC_ALL=C lscpu"),
        ("架构\uff1a   x86_64\nCPU:   64\n", "LC_ALL=C lscpu"),
        ("Architecture\u00a0:   x86_64\nSocket(s)\u00a0:   2\n", "not in English"),
        (made.XEON.split("Socket")[0], "sockets, cores or threads per core are missing"),
        (made.XEON.replace("Socket(s):           2", "Socket(s):           -"), "not a number"),
        (made.XEON.replace("Socket(s):           2", "Core(s) per cluster: 4"),
         "describes clusters, not sockets"),
        (NVME.split("\t\tLnkSta")[0], "has no link status"),
        (NVME.replace("x4", f"x{NINES}"), TOO_LONG),
        (NVME.replace("NUMA node: 0", f"NUMA node: {NINES}"), TOO_LONG),
        (f'{{"Devices": {NINES}}}', TOO_LONG),
        ('{"Devices": [', "cut or broken JSON"),
        ('{"Devices": []}', "names no CPU, drive or array"),
        ('{"Devices": [1, {"a": 2}]}', "names no CPU, drive"),
        ('{"Devices": {"a": 1}}', "has no list of devices"),
        ('{"Device": 1, "FriendlyName": 2, "MediaType": "SSD"}', "a list of disks from Windows"),
        ('{"Devices": ' + "[" * 9_000, "cut or broken JSON"),
        (LSTOPO[:900], "cut or broken XML"),
        (LSTOPO.replace('"hwloc2.dtd">', '"x" [<!ENTITY a "b">]>'), "declares entities"),
        (LSTOPO.replace("<topology", "<object>" * 100 + "<topology", 1), "nested too deeply"),
        (LSTOPO.replace('"PU"', '"Pu"'), "has a Package without PUs"),
        (LSTOPO.replace('"Package"', '"Pack"'), "has no Package"),
        ("Personalities : [raid5]\nmd0 : active raid5 a[0]\n", "is cut"),
        ("Personalities : [raid5]\nunused devices: <none>\n", "names no CPU, drive or array"),
        (MDSTAT.replace("raid5 nvme2", "linear nvme2"), "does not model"),
        (MDSTAT.replace("[2]", f"[{NINES}]"), TOO_LONG),
        (MDSTAT.replace("unused devices: <none>", ""),
         "is cut: the line 'unused devices' is missing"),
        (MDSTAT.replace(" : active raid5", " : moving raid5"), "has the line 'md0 : moving raid5"),
        (MDSTAT.replace("      1000 blocks super", ""), "is cut: md0 has no members or no size"),
        (MDSTAT.replace("nvme0n1[0]", "md9[0]"),
         "has md9 as a member; arrays of arrays are not modelled"),
        (DETAIL.replace("Raid Devices : 4", "Raid Devices : 0"), "Raid Devices is '0'"),
        (DETAIL.replace("Raid Level", "Raid Lev"), "has no level or no number of devices"),
        (DETAIL[: DETAIL.rindex("       4")], "lists 3 of 4 devices"),
    ],
)  # fmt: skip
def test_bad_dumps_are_said_in_one_line(tmp_path: Path, dump: str, said: str) -> None:
    assert said in refusal(tmp_path, dump)


def test_dumps_of_different_servers_and_missing_files_are_refused(tmp_path: Path) -> None:
    other = made.XEON.replace("socket:  16", "socket:  8")
    one = refusal(tmp_path, made.XEON, other, made.nvme("01:00.0"))
    assert "dump0 (lscpu) says 2 sockets of 16 cores, dump1 (lscpu) 2 of 8" in one
    assert "NUMA node 5" in refusal(tmp_path, made.XEON, made.nvme("01:00.0", node=5))
    with pytest.raises(InputError, match="no file is named"):
        description([])
    with pytest.raises(InputError, match="No such file"):
        description(["/nonexistent/lscpu.txt"])
