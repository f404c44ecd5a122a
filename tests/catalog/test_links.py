"""Links against the published models and ceilings they are built from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.catalog import links
from nvmesim.errors import UnitError

# GB/s of 4 KiB transfers by (link, MPS): (up, down). Source: formulas of the pcie-bench model
# (SIGCOMM 2018), evaluated apart from this package; printed with two decimals.
PCIE_BENCH = {
    ("pcie1 x4", 128): (0.66, 0.67),
    ("pcie1 x4", 512): (0.85, 0.86),
    ("pcie2 x4", 256): (1.65, 1.67),
    ("pcie3 x4", 128): (2.99, 3.07),
    ("pcie3 x4", 256): (3.32, 3.37),
    ("pcie3 x8", 512): (6.84, 6.89),
    ("pcie3 x16", 256): (12.99, 13.18),
    ("pcie4 x4", 256): (6.64, 6.74),
    ("pcie5 x4", 512): (14.1, 14.2),
}
PRINTED = 0.011
"""The table is rounded, partly downwards: one unit of its last digit."""


@pytest.mark.parametrize(("link", "mps"), PCIE_BENCH)
def test_pcie_matches_the_published_model(link, mps):
    parsed = links.parse_link(link)
    for direction, expected in zip(("up", "down"), PCIE_BENCH[link, mps], strict=True):
        gb_per_s = 4096e3 / links.transfer_time_ps(parsed, 4096, direction, mps=mps)
        assert gb_per_s == pytest.approx(expected, abs=PRINTED if expected < 14 else 0.1)


@pytest.mark.parametrize(
    ("link", "published", "shortfall"),
    [("sata3", 150e3, 0.06), ("sas3", 300e3, 0.08), ("pcie3 x4", 1000e3, 0.21)],
)
def test_interface_ceilings(link, published, shortfall):
    """The published ceilings leave out the protocol; with it they are missed by so much."""
    ceiling = links.command_ceiling(links.parse_link(link), "read", 4096)
    print(f"{link}: {ceiling / 1e3:.0f}k, published {published / 1e3:.0f}k")
    assert 1 - shortfall <= ceiling / published < 1


def test_socket_links_carry_two_bytes_a_transfer():
    assert links.socket_link("upi", 1, "10.4 GT/s").raw_bytes_per_s == 20.8e9
    assert links.socket_link("qpi", 2).raw_bytes_per_s == 38.4e9


def test_remote_read_bandwidth_of_the_measured_system():
    """Memory Latency Checker: 34.4 GB/s across what is assumed to be two links of 10.4 GT/s."""
    upi = links.socket_link("upi", 2)
    assert 2**20 * 1e3 / links.transfer_time_ps(upi, 2**20, "up") == pytest.approx(34.4, rel=0.02)


@pytest.mark.parametrize(
    "text",
    ["", "pcie", "pcie3", "pcie3 x3", "pcie0 x4", "pcie7 x4", "sata3 x2", "sas9", "usb3", "x4"],
)
def test_links_that_do_not_exist(text):
    with pytest.raises(UnitError, match=r"write|has|no generation"):
        links.parse_link(text)


@pytest.mark.parametrize(
    ("kind", "n", "rate", "match"),
    [
        ("upi", 2, "11 GT/s", "no upi has"),
        ("upi", 0, None, "1 to 8"),
        ("uppi", 2, None, "did you mean 'upi'"),
        ("upi", 2, "10.4", "no unit"),
    ],
)
def test_socket_links_that_do_not_exist(kind, n, rate, match):
    with pytest.raises(UnitError, match=match):
        links.socket_link(kind, n, rate)


EVERY = ["pcie1 x1", "pcie3 x4", "pcie4 x16", "pcie6 x8", "sata3", "sas3", "sas4 x2", "dmi3"]


@given(st.sampled_from(EVERY), st.integers(1, 2**24), st.sampled_from(["up", "down"]))
def test_a_transfer_never_beats_the_raw_wire(text, n_bytes, direction):
    link = links.parse_link(text)
    seconds = links.transfer_time_ps(link, n_bytes, direction) / 1e12
    assert seconds >= n_bytes / link.raw_bytes_per_s


@given(st.sampled_from(EVERY), st.integers(1, 2**22), st.integers(1, 2**22))
def test_more_bytes_take_longer(text, a, b):
    link = links.parse_link(text)
    small, large = sorted((a, b))
    assert links.transfer_time_ps(link, small, "up") <= links.transfer_time_ps(link, large, "up")


@pytest.mark.parametrize("text", EVERY)
def test_links_print_as_they_are_written(text):
    link = links.parse_link(text)
    assert links.parse_link(str(link)) == link
