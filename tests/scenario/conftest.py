import pytest

EXAMPLE = """
name = "4 x P4610, RAID5, two sockets"

[server]
stack = "windows-2019"
[[server.sockets]]
cpu = "xeon-gold-6250"
[[server.sockets]]
cpu = { cores = 8, threads_per_core = 2, ghz = 3.9, lanes = 48 }
memory = false
[server.interconnect]
kind = "upi"
links = 2
rate = "10.4 GT/s"

[[adapters]]
name = "quad"
kind = "adapter"
link = "pcie3 x16"
socket = 0

[[drives]]
profile = "intel-p4610-1.6tb"
count = 4
behind = "quad"
link = "pcie3 x4"
state = "steady"

[volume]
raid = "raid5"
layout = "left-symmetric"
chunk = "512 KiB"
engine = "linux-md"
degraded = []
rebuild = false
members = [0, 1, 2, 3]
read_policy = "md"
rmw_level = 1
stripe_cache = 256
bitmap = "none"
spares = 0

[[workload]]
block_size = { "4 KiB" = 0.7, "64 KiB" = 0.3 }
access = "random"
align = "4 KiB"
offset = "0"
read = 0.7
threads = 32
outstanding = 32
targets = "all"
span = "100 GiB"
socket = 0
filesystem = "raw"
guest = "none"

[run]
precision = "1%"
seed = 1
"""


@pytest.fixture
def example(tmp_path):
    """A scenario file with nearly every key in it."""
    path = tmp_path / "lab.toml"
    path.write_text(EXAMPLE, "utf-8")
    return path
