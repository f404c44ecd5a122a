"""Scenarios at random: most are valid, some must be refused."""

from typing import Any

from hypothesis import strategies as st

DRIVES = st.sampled_from(
    ["intel-p4610-1.6tb", "samsung-980pro-1tb", "micron-7450-pro-3.84tb", "sata-ssd", "hdd-7200"]
)
CPUS = st.sampled_from(["xeon-gold-6130", "xeon-gold-6250", "epyc-7763"])
STACKS = st.sampled_from(["linux-io_uring", "linux-libaio", "windows-2019", "spdk"])
SIZES = st.sampled_from(["512 B", "4 KiB", "16 KiB", "64 KiB", "128 KiB", "1 MiB"])
CHUNKS = st.sampled_from(["4 KiB", "64 KiB", "100 KiB", "512 KiB"])
LAYOUTS = {
    "raid10": ["near2", "far2", "offset2", "near3"],
    "raid5": ["left-symmetric", "right-asymmetric"],
    "raid6": ["left-symmetric", "parity-first"],
}


@st.composite
def volumes(draw: st.DrawFn, n_drives: int) -> dict[str, Any]:
    level = draw(st.sampled_from(["raid0", "raid1", "raid10", "raid5", "raid6"]))
    volume: dict[str, Any] = {"raid": level, "chunk": draw(CHUNKS)}
    if level in LAYOUTS and draw(st.booleans()):
        volume["layout"] = draw(st.sampled_from(LAYOUTS[level]))
    if draw(st.integers(0, 3)) == 0:
        volume["degraded"] = draw(st.lists(st.integers(0, n_drives), max_size=2))
        volume["rebuild"] = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        volume["engine"] = draw(st.sampled_from(["none", "intel-vroc", "hardware-raid"]))
    if draw(st.integers(0, 5)) == 0:
        volume["bitmap"] = "internal"
    return volume


@st.composite
def workloads(draw: st.DrawFn, n_sockets: int) -> dict[str, Any]:
    load: dict[str, Any] = {
        "block_size": draw(SIZES),
        "access": draw(st.sampled_from(["random", "sequential"])),
        "read": draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
        "span": draw(st.sampled_from(["1 GiB", "10 GiB", "1 MiB"])),
    }
    how = draw(st.integers(0, 9))
    if how == 0:
        load |= {"rate": draw(st.sampled_from(["500/s", "20k/s"])), "arrivals": "paced"}
    elif how == 1:
        return {"diskspd": draw(st.sampled_from(["-b4K -t2 -o4 -w30 -r -d5", "-b64K -si -t3 -d5"]))}
    else:
        threads = draw(st.sampled_from(["threads", "threads_total"]))
        load |= {threads: draw(st.integers(1, 3)), "outstanding": draw(st.integers(1, 8))}
        if draw(st.integers(0, 4)) == 0:
            load["think_time"] = "100 us"
    if draw(st.integers(0, 3)) == 0:
        load["socket"] = draw(st.integers(0, n_sockets))
    if draw(st.integers(0, 4)) == 0:
        load["align"] = draw(st.sampled_from(["512 B", "4 KiB", "1 MiB", "1000 B"]))
    if draw(st.integers(0, 5)) == 0:
        load["filesystem"] = draw(st.sampled_from(["ext4", "ntfs"]))
    if load["read"] < 1 and draw(st.integers(0, 4)) == 0:
        load[draw(st.sampled_from(["fsync", "fdatasync"]))] = draw(st.integers(1, 3))
    return load


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    n_sockets = draw(st.integers(1, 2))
    cpu = draw(CPUS)
    n_drives = draw(st.integers(1, 6))
    drive: dict[str, Any] = {"profile": draw(DRIVES), "count": n_drives}
    if draw(st.integers(0, 2)) == 0:
        drive["socket"] = draw(st.integers(0, n_sockets - 1))
    tables: dict[str, Any] = {
        "server": {"stack": draw(STACKS), "sockets": [{"cpu": cpu}] * n_sockets},
        "drives": [drive],
        "workload": draw(st.lists(workloads(n_sockets), min_size=1, max_size=2)),
    }
    if draw(st.booleans()):
        tables["volume"] = draw(volumes(n_drives))
    return tables
