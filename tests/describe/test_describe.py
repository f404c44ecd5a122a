"""What `nvmesim describe` makes of real and of made-up dumps."""

import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvmesim.cli.main import run_command
from nvmesim.describe import description
from nvmesim.describe.facts import Disk, drive_part
from nvmesim.errors import InputError
from nvmesim.scenario.load import load_scenario
from nvmesim.scenario.resolve import resolve
from tests.describe import dumps_of_servers as made
from tests.servers import bare

DATA = Path(__file__).parent / "data"
P4610 = "INTEL SSDPE2KE016T8"
Describe = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def described(tmp_path: Path) -> Describe:
    """Describe texts and sample names; return the tables and the text, loaded as users would."""

    def run(*dumps: str) -> tuple[dict[str, Any], str]:
        files = []
        for number, dump in enumerate(dumps):
            if (DATA / dump[:60]).is_file():
                files.append(DATA / dump)
                continue
            file = tmp_path / f"dump{number}.txt"
            file.write_text(dump, encoding="utf-8")
            files.append(file)
        text = description(files).text
        out = tmp_path / "scenario.toml"
        out.write_text(text, encoding="utf-8")
        resolve(load_scenario(out))
        return tomllib.loads(text), " ".join(text.replace("#", "").split())

    return run


def test_everything_of_a_real_guest_together(described: Describe) -> None:
    tables, text = described(
        "lscpu.txt",
        "lspci_vv.txt",
        "nvme_list.json",
        "mdadm_detail_raid5_degraded.txt",
        "mdstat_raid5_degraded.txt",
    )
    assert len(tables["server"]["sockets"]) == 2
    assert sum(drives["count"] for drives in tables["drives"]) == 5
    assert {drives["socket"] for drives in tables["drives"]} == {0, 1}
    assert all("link" not in drives for drives in tables["drives"])
    volume = tables["volume"]
    assert (volume["raid"], volume["chunk"], volume["degraded"]) == ("raid5", "64 KiB", [2])
    # Roles of mdadm --detail: nvme3, nvme4, the faulty nvme1, nvme2; numbers count nvme1 first.
    assert volume["members"] == [2, 3, 0, 1]
    assert "emulated NVMe reports no real links" in text
    assert "/proc/mdstat does not say" not in text


def test_cpus_as_seen_and_those_that_are_not_known(described: Describe) -> None:
    off = made.XEON.replace("core:  2", "core:  1").replace("64\n", "32\n")
    tables, text = described(off, "nvme_list.json")
    assert tables["server"]["sockets"][0]["cpu"] == {
        "extends": "xeon-gold-6130",
        "threads_per_core": 1,
    }
    assert "as seen, not as sold" in text
    lspci = "".join(made.nvme(f"{n:02x}:00.0", "32GT/s x4", "32GT/s x4") for n in range(16, 40))
    unknown = made.XEON.replace("Gold 6130", "Gold 9999").replace(
        "Socket(s):           2", "Socket(s):           1"
    )
    tables, _ = described(unknown.replace("node(s):        2", "node(s):        1"), lspci)
    cpu = tables["server"]["sockets"][0]["cpu"]
    assert (cpu["lanes"], cpu["pcie_generation"], cpu["ghz"]) == (96, 5, 2.1)
    topology = made.lstopo(["", ""], cores=16, memory=(2**37, 0))
    tables, _ = described(made.XEON, topology, "nvme_list.json")
    assert [s.get("memory", True) for s in tables["server"]["sockets"]] == [True, False]


def test_lists_of_nvme_name_place_and_size_each_drive(described: Describe) -> None:
    tables, text = described(made.nvme_list([("nvme0n1", "INTEL SSDPE2KE032T8", 3200631791616)]))
    assert tables["drives"][0]["profile"]["extends"] == "intel-p4610-1.6tb"
    assert tables["drives"][0]["profile"]["capacity"] == "3200631791616 B"
    assert "of that series, of another capacity" in text
    lspci = made.nvme("10:00.0", node=1) + made.nvme("90:00.0", node=0)
    disks = [("nvme0n1", P4610, 1600321314816), ("nvme1n1", "Samsung SSD 980 PRO 1TB", 10**12)]
    listed = made.nvme_list(disks, ["0000:10:00.0", "0000:90:00.0"])
    tables, text = described(made.XEON, lspci, listed)
    assert [(d["profile"], d["socket"]) for d in tables["drives"]] == [
        ("intel-p4610-1.6tb", 1),
        ("samsung-980pro-1tb", 0),
    ]
    assert "both are taken in order" not in text
    tables, _ = described("nvme_list.txt")
    assert sum(drive["count"] for drive in tables["drives"]) == 5
    assert tables["drives"][0]["profile"]["capacity"] == "67110000 B"
    hostile = 'x"]\n[server]\nstack = "spdk"\x7f\u2028#'
    tables, _ = described(made.nvme_list([("nvme0n1", hostile, 10**12)]))
    assert tables["server"]["stack"] == "linux-io_uring"


def test_switch_and_downgraded_link(described: Describe) -> None:
    ports = "".join(
        made.bridge(f"03:0{n}.0", 4 + n, "Downstream Port (Slot+)", "8GT/s x4") for n in range(4)
    )
    lspci = (
        made.bridge("00:01.0", 2, "Root Port (Slot+)", "8GT/s x16", node=1)
        + made.bridge("02:00.0", 3, "Upstream Port", "8GT/s x8")
        + ports
        + "".join(made.nvme(f"0{4 + n}:00.0", node=1) for n in range(3))
        + made.nvme("07:00.0", "8GT/s x2", "8GT/s x4", node=1)
    )
    tables, text = described(made.XEON, lspci)
    (adapter,) = tables["adapters"]
    assert adapter == {"name": "switch0", "kind": "switch", "link": "pcie3 x8", "socket": 1}
    assert [d["behind"] for d in tables["drives"]] == ["switch0"] * 2
    assert [(d["count"], d["link"]) for d in tables["drives"]] == [(3, "pcie3 x4"), (1, "pcie3 x2")]
    assert "0000:07:00.0 runs at pcie3 x2 of the pcie3 x4 it can" in text


def test_drives_behind_vmd_and_raid_controllers(described: Describe) -> None:
    vmd = (
        "5d:05.5 RAID bus controller: Intel Corporation Volume Management Device NVMe RAID "
        "Controller (rev 04)\n\tControl: I/O- Mem+\n\tNUMA node: 1\n\n"
    )
    drives = "".join(made.nvme(f"10000:0{n}:00.0", node=1) for n in range(1, 5))
    tables, text = described(made.XEON, vmd + drives)
    assert tables["adapters"] == [{"name": "vmd0", "kind": "vmd", "link": "pcie3 x16", "socket": 1}]
    assert "VMD domain is taken to have 16 lanes" in text
    assert text.count("[[adapters]]") == 1
    disks = "".join(
        f'<object type="OSDev" name="sd{x}" osdev_type="0"><info name="Size" value="937684566"/>'
        '<info name="SectorSize" value="512"/><info name="Model" value="PM1643"/></object>'
        for x in "ab"
    )
    card = (
        '<object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0104 [1000:0014] [1028:1fd4] 01" '
        f'pci_link_speed="7.876923">{disks}</object>'
    )
    tables, _ = described(made.lstopo([card]))
    assert tables["adapters"][0]["kind"] == "controller"
    assert tables["adapters"][0]["link"] == "pcie3 x8"
    assert tables["drives"][0]["behind"] == "controller0"
    assert tables["drives"][0]["profile"]["extends"] == "sas-ssd"


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ("<access denied>\n", "not run as root"),
        ("[70] Express (v2) Endpoint, MSI 00\n", "the link of 0000:00:1f.0 is not in the dumps"),
        ("[70] Express (v2) Endpoint, MSI 00\n\t\tLnkSta:\tSpeed unknown, Width x0\n",
         "the link of 0000:00:1f.0 is not in the dumps"),
    ],
    ids=["without root", "a cloud", "a cloud that says unknown"],
)  # fmt: skip
def test_links_that_lspci_does_not_say_are_left_open(
    described: Describe, capabilities: str, said: str
) -> None:
    tables, text = described(
        "00:1f.0 Non-Volatile memory controller: Amazon.com, Inc. NVMe SSD Controller\n"
        f"\tControl: I/O-\n\tCapabilities: {capabilities}"
    )
    assert "link" not in tables["drives"][0]
    assert said in text


def test_lstopo_alone_is_enough(described: Describe) -> None:
    drive = made.lstopo_drive
    behind = "".join(
        made.lstopo_bridge(
            f"0000:03:0{n}.0",
            drive(f"nvme{n}n1", f"0000:0{4 + n}:00.0", "Samsung SSD 980 PRO 1TB"),
            "3.938462",
        )
        for n in range(2)
    )
    switch = made.lstopo_bridge("0000:02:00.0", behind, "15.753846")
    first = made.lstopo_bridge("0000:00:01.0", switch, "15.753846")
    second = drive("nvme2n1", "0000:c1:00.0", "Samsung SSD 980 PRO 1TB", "7.876923")
    tables, text = described(made.lstopo([first, second]))
    assert [socket["cpu"] for socket in tables["server"]["sockets"]] == ["epyc-7763"] * 2
    assert tables["adapters"][0]["link"] == "pcie3 x16"
    assert [(d["count"], d["link"]) for d in tables["drives"]] == [(2, "pcie3 x4"), (1, "pcie4 x4")]
    assert tables["drives"][1]["socket"] == 1
    assert "lstopo gives bandwidths" in text


@pytest.mark.parametrize(
    ("dump", "expected"),
    [
        ("mdadm_detail_raid10.txt", {"raid": "raid10", "layout": "near2", "chunk": "512 KiB"}),
        ("mdadm_detail_raid1_spare.txt", {"raid": "raid1", "spares": 1, "members": [0, 1]}),
        ("mdadm_detail_raid6.txt", {"raid": "raid6", "bitmap": "internal"}),
        ("mdadm_detail_raid5_recovery.txt", {"degraded": [2], "rebuild": True}),
        ("mdstat_raid5_recovery.txt", {"degraded": [2], "rebuild": True}),
        ("mdstat_raid6_bitmap.txt", {"raid": "raid6", "chunk": "256 KiB", "bitmap": "internal"}),
        ("mdstat_raid5_clean.txt", {"layout": "left-symmetric", "members": [2, 3, 0, 1]}),
    ],
)
def test_arrays_of_a_real_md(described: Describe, dump: str, expected: dict[str, Any]) -> None:
    tables, _ = described(dump)
    assert {key: tables["volume"].get(key) for key in expected} == expected


def test_what_is_missing_is_said(described: Describe, tmp_path: Path) -> None:
    tables, text = described(made.XEON)
    assert [s["cpu"] for s in tables["server"]["sockets"]] == ["xeon-gold-6130"] * 2
    assert sum(drives["count"] for drives in tables["drives"]) == 1
    assert "no dump names one, so one stands in for them" in text
    assert "add lstopo --of xml" in text
    assert "a server without its drives" in tables["name"]
    (tmp_path / "lscpu.txt").write_text(made.XEON, encoding="utf-8")
    found = description([tmp_path / "lscpu.txt"]).to_json()
    assert set(found) == {"files", "read", "ignored", "missing", "assumed", "scenario", "toml"}
    assert [text.split(":")[0] for text in found["missing"]] == [
        "drives",
        "which sockets have memory",
    ]
    whole = made.lstopo([made.lstopo_drive("nvme0n1", "0000:01:00.0", "X")])
    (tmp_path / "lstopo.xml").write_text(whole, encoding="utf-8")
    assert not description([tmp_path / "lstopo.xml"]).missing


def test_what_is_written_runs(tmp_path: Path) -> None:
    """Every real sample by itself, as far as it is a dump."""
    written = 0
    for sample in sorted(DATA.iterdir()):
        try:
            text = description([sample]).text
        except InputError:
            continue
        out = tmp_path / "scenario.toml"
        out.write_text(text, encoding="utf-8")
        assert bare(load_scenario(out), requests=500).total.iops.value > 0
        written += 1
    assert written >= 14


def test_packets_of_the_drives_are_the_scenario_s(described: Describe) -> None:
    set_to = made.nvme("01:00.0").replace(
        "\t\tLnkCap:",
        "\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0\n"
        "\t\t\tMaxPayload 128 bytes, MaxReadReq 512 bytes\n\t\tLnkCap:",
    )
    assert "MaxReadReq" in set_to
    tables, text = described(made.XEON, set_to)
    assert tables["server"]["max_payload"] == "128 B"
    assert tables["server"]["max_read_request"] == "512 B"
    assert "packets of 128 bytes, read requests of 512" in text
    tables, _ = described("lspci_vv.txt")  # emulated: it means nothing
    assert "max_payload" not in tables["server"]


def test_a_pasted_box_of_several_dumps_reads_each_and_names_the_rest(tmp_path: Path) -> None:
    box = tmp_path / "paste.txt"
    lspci = made.nvme("01:00.0", node=1) + made.nvme("02:00.0", node=1)
    parts = [
        "Here is my server.\n",
        "root@box:~# lscpu\n" + made.XEON,
        "root@box:~# lspci -vv\n" + lspci,
        (DATA / "numactl_H.txt").read_text(),
        "[root@box ~]# nvme list -o json\n" + (DATA / "nvme_list.json").read_text(),
        "$ cat /proc/mdstat\n" + (DATA / "mdstat_raid5_clean.txt").read_text(),
        "Thanks!\n",
    ]
    box.write_text("\n".join(parts), encoding="utf-8")
    found = description([box])
    tools = [text[text.index("(") + 1 : text.index(")")] for text in found.read]
    assert list(dict.fromkeys(tools)) == ["lscpu", "lspci -vv", "nvme list -o json", "/proc/mdstat"]
    lines = box.read_text().split("\n")
    expected = [
        (1, "'Here is my server.'"),
        (lines.index("available: 2 nodes (0-1)") + 1, "numactl (give lstopo --of xml)"),
        (lines.index("Thanks!") + 1, "'Thanks!'"),
    ]
    assert len(found.ignored) == len(expected)
    for text, (line, what) in zip(found.ignored, expected, strict=True):
        assert text.endswith(f"from line {line}: {what}")
    one_by_one = []
    for number, part in enumerate(parts[1:3] + parts[4:6]):
        file = tmp_path / f"dump{number}.txt"
        file.write_text(part.split("\n", 1)[1], encoding="utf-8")
        one_by_one.append(file)
    together, apart = tomllib.loads(found.text), tomllib.loads(description(one_by_one).text)
    assert together == apart


def collected(folder: Path, **tools: str) -> Path:
    """Run the collecting script with *tools* (name: what it prints) first on PATH."""
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name, text in tools.items():
        (folder / f"{name}.out").write_text(text)
        script = stand_ins / name
        script.write_text(f"#!/bin/sh\ncat '{folder}/{name}.out'\n")
        script.chmod(0o755)
    script = folder / "collect.sh"
    assert run_command(["describe", "--collect", "-o", str(script)]) == 0
    env = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "MDSTAT": str(folder / "mdstat.out")}
    ran = subprocess.run(["sh", str(script)], env=env, capture_output=True, text=True, check=False)
    out = folder / "server.txt"
    out.write_text(ran.stdout)
    return out


def test_what_the_script_collects_is_read(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mdstat.out").write_text((DATA / "mdstat_raid5_degraded.txt").read_text())
    server = collected(
        tmp_path,
        lscpu=(DATA / "lscpu.json").read_text(),
        lspci=(DATA / "lspci_vv.txt").read_text(),
        nvme=(DATA / "nvme_list.json").read_text(),
        mdadm=(DATA / "mdadm_detail_raid5_degraded.txt").read_text(),
    )
    found = description([server])
    assert not found.ignored
    assert "lstopo did not run there" in found.missing
    files = ("lscpu.json", "lspci_vv.txt", "nvme_list.json", "mdadm_detail_raid5_degraded.txt")
    expected = tomllib.loads(description([DATA / name for name in files]).text)
    assert tomllib.loads(found.text) == expected
    assert run_command(["describe", str(server), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert printed["scenario"]["volume"]["degraded"] == [2]


LSBLK = {
    "blockdevices": [
        {"name": "loop0", "type": "loop", "size": 4096},
        {"name": "vda", "type": "disk", "size": 10**11, "rota": True, "tran": None},
        {
            "name": "sda",
            "type": "disk",
            "tran": "sata",
            "children": [{"name": "sda1", "type": "part", "mountpoint": "/"}],
        },
        {"name": "sdb", "type": "disk", "size": "3.6T", "rota": True, "tran": "sas"},
        {"name": "nvme0n1", "type": "disk", "model": P4610, "size": 1600321314816, "rota": "0"},
    ]
}


def test_lsblk_and_plain_lspci_name_drives_and_leave_links_open(described: Describe) -> None:
    tables, text = described(json.dumps(LSBLK))
    drives = tables["drives"]
    assert [drive["count"] for drive in drives] == [1, 1]
    assert drives[0]["profile"] == "intel-p4610-1.6tb"
    assert drives[1]["profile"]["extends"] == "hdd-7200"
    assert "sda carries the system and is left out" in text
    plain = "01:00.0 Non-Volatile memory controller: Intel SSD\n" * 2
    tables, text = described(made.XEON, plain.replace("01", "02", 1))
    assert tables["drives"][0]["count"] == 2
    assert "link" not in tables["drives"][0]
    assert "plain lspci shows no links" in text


@pytest.mark.parametrize("indent", ["\t\t", "    ", ""])
def test_links_that_grep_left_of_lspci_are_read(indent: str, described: Describe) -> None:
    """As threads show them: lspci -vv | grep -E 'Non-Vol|Lnk', the tabs lost on the way."""
    drive = "01:00.0 Non-Volatile memory controller: Samsung NVMe SSD Controller PM9A1\n"
    links = (
        "LnkCap:\tPort #0, Speed 16GT/s, Width x4",
        "LnkSta:\tSpeed 8GT/s (downgraded), Width x4",
    )
    tables, _ = described(made.XEON, drive + "".join(f"{indent}{line}\n" for line in links))
    assert tables["drives"][0]["link"] == "pcie3 x4"


def test_root_complexes_are_listed_with_their_drives(tmp_path: Path) -> None:
    lspci = (
        made.bridge("00:01.0", 1, "Root Port (Slot+)", "8GT/s x4", node=0)
        + made.nvme("01:00.0")
        + made.bridge("40:03.1", 0x41, "Root Port (Slot+)", "8GT/s x4", node=0)
        + made.nvme("41:00.0")
        + made.bridge("40:03.2", 0x42, "Root Port (Slot+)", "8GT/s x4", node=0)
        + made.nvme("42:00.0")
    )
    (tmp_path / "lspci.txt").write_text(lspci, encoding="utf-8")
    roots = [text for text in description([tmp_path / "lspci.txt"]).read if "root complex" in text]
    assert roots == [
        "2 PCIe root complexes: 0000:00 has 0000:01:00.0; 0000:40 has 0000:41:00.0, 0000:42:00.0"
    ]
    drive = made.lstopo_drive
    one = drive("nvme0n1", "0000:01:00.0", "X")
    two = drive("nvme1n1", "0000:41:00.0", "X")
    text = made.lstopo([one, two])
    for buses in ("00-05", "40-47"):
        text = text.replace(
            'bridge_type="0-1" pci', f'bridge_type="0-1" bridge_pci="0000:[{buses}]" pci', 1
        )
    (tmp_path / "lstopo.xml").write_text(text, encoding="utf-8")
    read = description([tmp_path / "lstopo.xml"]).read
    assert read[-1] == "2 PCIe root complexes: 0000:00 has nvme0n1; 0000:40 has nvme1n1"


def test_root_complexes_of_zen_are_in_the_scenario(described: Describe) -> None:
    epyc = made.XEON.replace("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", "AMD EPYC 7763 64-Core")
    epyc = epyc.replace("socket:  16", "socket:  64")
    lspci = "".join(
        made.bridge(f"{root:02x}:01.{n}", root + 1 + n, "Root Port (Slot+)", "16GT/s x4", node=node)
        + made.nvme(f"{root + 1 + n:02x}:00.0", "16GT/s x4", "16GT/s x4", node=node)
        for root, node in ((0x00, 0), (0x40, 0), (0x80, 1))
        for n in range(2)
    )
    tables, text = described(epyc, lspci)
    assert tables["server"]["roots"] == [
        {"name": f"root{n}", "socket": socket, "bandwidth": "39.7 GiB/s"}
        for n, socket in enumerate((0, 0, 1))
    ]
    assert [(d["root"], d["count"]) for d in tables["drives"]] == [
        ("root0", 2),
        ("root1", 2),
        ("root2", 2),
    ]
    assert "each PCIe root complex carries 39.7 GiB/s" in text
    plain, _ = described(made.XEON, lspci)
    assert "roots" not in plain["server"]
    assert [(d["socket"], d["count"]) for d in plain["drives"]] == [(0, 4), (1, 2)]


@pytest.mark.parametrize(
    ("model", "size", "name"),
    [
        ("Samsung NVMe SSD Controller PM173X", None, "samsung-pm1733-15.36tb"),
        ("KIOXIA CM7-R", 15_360_000_000_000, "kioxia-cm7-r-15.36tb"),
        ("SK hynix PE8010", None, "intel-p4510-1tb"),
    ],
)
def test_a_drive_is_that_of_the_series_that_its_name_says(model, size, name):
    found = drive_part(Disk("nvme0", model, size, "nvme"), None)
    assert name in str(found.profile)
    assert bool(found.assumed) == (size is None)
