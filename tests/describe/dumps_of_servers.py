"""Dumps of servers that the samples do not show, in the form that the tools print."""

import json

XEON = """Architecture:        x86_64
CPU(s):              64
Vendor ID:           GenuineIntel
Model name:          Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz
Thread(s) per core:  2
Core(s) per socket:  16
Socket(s):           2
NUMA node(s):        2
NUMA node0 CPU(s):   0-15,32-47
NUMA node1 CPU(s):   16-31,48-63
"""


def bridge(address: str, below: int, port: str, link: str, node: int | None = None) -> str:
    """Return a PCI bridge as lspci -vv prints it; *link* as "8GT/s x16"."""
    speed, width = link.split()
    numa = f"\tNUMA node: {node}\n" if node is not None else ""
    primary = int(address.split(":")[-2], 16)
    return (
        f"{address} PCI bridge: PLX Technology, Inc. PEX 9765 (rev aa) (prog-if 00 [Normal])\n"
        f"\tControl: I/O+ Mem+ BusMaster+\n{numa}"
        f"\tBus: primary={primary:02x}, secondary={below:02x}, subordinate=ff, sec-latency=0\n"
        f"\tCapabilities: [68] Express (v2) {port}, MSI 00\n"
        f"\t\tLnkCap:\tPort #0, Speed {speed}, Width {width}, ASPM L1\n"
        f"\t\tLnkSta:\tSpeed {speed} (ok), Width {width} (ok)\n\n"
    )


def nvme(address: str, link: str = "8GT/s x4", most: str = "8GT/s x4", node: int = 0) -> str:
    """Return an NVMe controller as lspci -vv prints it."""
    (speed, width), (top, wide) = link.split(), most.split()
    mark = "(ok)" if link == most else "(downgraded)"
    return (
        f"{address} Non-Volatile memory controller: Intel Corporation NVMe Datacenter SSD "
        "[3DNAND] (prog-if 02 [NVM Express])\n"
        f"\tControl: I/O- Mem+ BusMaster+\n\tNUMA node: {node}\n"
        "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
        f"\t\tLnkCap:\tPort #0, Speed {top}, Width {wide}, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed {speed} {mark}, Width {width} {mark}\n\n"
    )


def nvme_list(models: list[tuple[str, str, int]], addresses: list[str] | None = None) -> str:
    """Return nvme list -o json: flat as nvme-cli 1, or, with addresses, by controller as 2."""
    if addresses is None:
        flat = [
            {"DevicePath": f"/dev/{name}", "ModelNumber": model, "PhysicalSize": size}
            for name, model, size in models
        ]
        return json.dumps({"Devices": flat})
    controllers = [
        {
            "Controller": name[:-2],
            "ModelNumber": model,
            "Transport": "pcie",
            "Address": address,
            "Namespaces": [{"NameSpace": name, "NSID": 1, "PhysicalSize": size}],
        }
        for (name, model, size), address in zip(models, addresses, strict=True)
    ]
    subsystems = [{"Subsystem": "nvme-subsys0", "Controllers": controllers, "Namespaces": []}]
    return json.dumps({"Devices": [{"HostNQN": "x", "Subsystems": subsystems}]})


def lstopo_drive(name: str, address: str, model: str, speed: str = "3.938462") -> str:
    """Return one NVMe drive as lstopo --of xml writes it."""
    return (
        f'<object type="PCIDev" pci_busid="{address}" pci_type="0108 [144d:a80a] [144d:a801] 00" '
        f'pci_link_speed="{speed}"><info name="PCIDevice" value="NVMe SSD"/>'
        f'<object type="OSDev" name="{name}" subtype="Disk" osdev_type="0">'
        '<info name="Size" value="976762584"/><info name="SectorSize" value="512"/>'
        f'<info name="Model" value="{model}"/></object></object>'
    )


def lstopo_bridge(address: str, inside: str, speed: str = "15.753846", kind: str = "1-1") -> str:
    """Return a bridge with what is behind it."""
    return (
        f'<object type="Bridge" bridge_type="{kind}" pci_busid="{address}" '
        f'pci_type="0604 [10b5:9765] [0000:0000] aa" pci_link_speed="{speed}">{inside}</object>'
    )


def lstopo(
    sockets: list[str],
    model: str = "AMD EPYC 7763 64-Core Processor",
    cores: int = 64,
    memory: tuple[int, ...] = (),
) -> str:
    """Return a topology; each of *sockets* is the I/O of one package; *memory* in bytes."""
    core = '<object type="Core"><object type="PU"/><object type="PU"/></object>'
    packages = "".join(
        f'<object type="Package" os_index="{number * 3}"><info name="CPUModel" value="{model}"/>'
        f'<object type="NUMANode" os_index="{number}" local_memory="{size}"/>'
        f"{core * cores}{lstopo_bridge('', devices, kind='0-1')}</object>"
        for number, (devices, size) in enumerate(
            zip(sockets, memory or [2**37] * len(sockets), strict=True)
        )
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        '<topology version="2.0"><object type="Machine" os_index="0">'
        f"{packages}</object></topology>"
    )
