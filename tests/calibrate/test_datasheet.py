"""Data sheets as they are printed: read, fitted, and refused in one line."""

from pathlib import Path

import pytest

from nvmesim.calibrate.datasheet import Sheet, key_of, link_of, read_datasheet
from nvmesim.calibrate.drive.fit import fit_datasheet
from nvmesim.errors import CaptureError

SHEET = """\
capacity = "3.84 TB"
link = "PCIe 4.0 x4"
random_read = "1,100K IOPS"
random_write = "200K IOPS"
sequential_read = "6,800 MB/s"
sequential_write = "4,100 MB/s"
read_latency = "75 us"
write_latency = "15 us"
power_active = "20 W"
"""
PRINTED = """\
Capacity, 3.84 TB
Interface, PCIe Gen4 x4 NVMe 1.4
4K Random Read, up to 1,100K IOPS
Random Write (4KB), 200K IOPS
Sequential Read (128KB), "6,800 MB/s"
Sequential Write (128KB), 4.1 GB/s
"Typical latency, read", 75 µs
"Typical latency, write", 0.015 ms
Power (active), 20 W
"""


def sheet(folder: Path, text: str, name: str = "s.toml") -> Sheet:
    (folder / name).write_text(text, encoding="utf-8")
    return read_datasheet(folder / name)


def test_toml_and_printed_labels_say_the_same(tmp_path: Path) -> None:
    a, b = sheet(tmp_path, SHEET), sheet(tmp_path, PRINTED, "s.csv")
    assert a.figures == pytest.approx(b.figures)
    assert a.link == b.link == "pcie4 x4"
    assert b.places["random_write"] == "line 4"


@pytest.mark.parametrize("mix", [None, "450K IOPS"])
def test_every_figure_is_reproduced(tmp_path: Path, mix: str | None) -> None:
    text = SHEET + (f'mix_70_30 = "{mix}"\n' if mix else "")
    fit = fit_datasheet(sheet(tmp_path, text))
    for j in fit.points:
        print(j.point.where, j.residual)
        assert abs(j.residual["iops"]) < 0.05, j.point.where
    assert fit.misses == ()
    p = fit.profile
    assert p.capacity.value == 3.84e12
    assert p.capacity.basis == "datasheet"
    assert p.write_bandwidth.basis == "datasheet"
    assert p.write_bandwidth.value == pytest.approx(4.1e9, rel=0.03)
    assert p.write.base.value < 20e6
    assert p.power_active_w is not None
    assert p.captured.datasheet
    assert bool(p.alternatives) or mix is not None


def test_a_mix_above_both_pure_rates_is_reproduced(tmp_path: Path) -> None:
    """An Optane's 70/30 figure: reads and writes each have a way of their own."""
    text = (
        SHEET.replace("1,100K", "1,500K").replace("200K", "1,350K").replace("75 us", "5 us")
        .replace("15 us", "5 us").replace("6,800", "7,200").replace("4,100", "6,100")
    )  # fmt: skip
    fit = fit_datasheet(sheet(tmp_path, text + 'mix_70_30 = "1,800K IOPS"\n'))
    assert max(abs(fit.residuals)) < 0.05


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('capacity = "3.84 TB"', "", "capacity is missing, and hours of a rebuild"),
        ('link = "PCIe 4.0 x4"', "", "link is missing"),
        ("200K IOPS", "0 IOPS", "random_write: random_write is '0 IOPS'; it must be .* above 0"),
        ("200K IOPS", "-3K", "above 0"),
        ("75 us", "75 ms", "read_latency: read_latency is '75 ms', which no drive is"),
        ("6,800 MB/s", "68,000 MB/s", "sequential_read.* is more than pcie4 x4 carries"),
        ("6,800 MB/s", "6,800 IOPS", "without a unit that is known"),
        ("15 us", "9 ms", "write_latency: 9 ms alone is 111 IOPS, more than random_write"),
        ("random_read", "rendom", "'rendom' is not known"),
        ("random_read", "randon_read", "'randon_read' is not known; .*random_read"),
        ("read_latency", "read_latancy", "'read_latancy' is not known; .*read_latency"),
        ('random_read = "1,100K IOPS"', "random_read = [1]", "write it as printed"),
        ("PCIe 4.0 x4", "PCIe 9.0 x4", "link: link: .*9"),
        ("PCIe 4.0 x4", "a cable", "link: link: 'a cable'"),
        ("6,800 MB/s", "many MB/s", "sequential_read is 'many MB/s'"),
    ],
)
def test_sheets_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = SHEET.replace(old, new)
    if "ms alone" in said:
        text = text.replace("200K IOPS", "20 IOPS")
    with pytest.raises(CaptureError, match=said):
        sheet(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; write a label and a value a line"),
        ("# only a word\n\n", "is empty"),
        ("Capacity,Random Read\n", "line 1 has names and no values"),
        ("Capacity,3.84 TB\nRandom Read\nRandom Write,3\n", "line 2 has 1 cells"),
        ("Capacity;3.84 TB\nInterface;PCIe 4.0 x4\n", "has no figure of performance; write"),
        (
            "Random Read;1,100K IOPS\nCapacity;3.84 TB\n4K Random Read;900K IOPS\n",
            "line 3: '4K Random Read' says random_read again, after line 1; keep one",
        ),
    ],
)
def test_printed_sheets_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        sheet(tmp_path, text, "s.csv")


def test_what_is_no_text_and_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes(b"\xff\xfe\x00capacity")
    with pytest.raises(CaptureError, match=r"s\.csv: is not text"):
        read_datasheet(tmp_path / "s.csv")
    with pytest.raises(CaptureError, match=r"t\.csv: no such file; name a data sheet"):
        read_datasheet(tmp_path / "t.csv")


def test_a_table_of_one_drive_reads_across(tmp_path: Path) -> None:
    """Names in the first row, values in the second, an empty cell is no figure."""
    down = sheet(tmp_path, PRINTED, "down.csv")
    rows = [line.replace("; ", ";").split(";") for line in (
        "Capacity; 3.84 TB", "Interface; PCIe Gen4 x4 NVMe 1.4", "Random Read; 1,100K IOPS",
        "Random Write; 200K IOPS", "Latency, read; 75 us", "Power (idle); ",
    )]  # fmt: skip
    across = "\n".join(";".join(cells) for cells in zip(*rows, strict=True))
    found = sheet(tmp_path, across, "across.csv")
    assert found.figures == {key: down.figures[key] for key in found.figures}
    assert set(found.figures) == {"capacity", "random_read", "random_write", "read_latency"}
    assert found.link == down.link
    assert found.places["random_write"] == "line 2, column 4"


@pytest.mark.parametrize(
    ("printed", "link"),
    [
        ("SATA 6 Gb/s", "sata3"),
        ("SAS 12 Gb/s", "sas3"),
        ("24 Gb/s SAS", "sas4"),
        ("SAS-4 (22.5 GBd)", "sas4"),
        ("NVMe 1.4, 4.0 x4", "pcie4 x4"),
    ],
)
def test_links_as_printed(printed: str, link: str) -> None:
    assert link_of(printed) == link


@pytest.mark.parametrize(
    ("printed", "key"),
    [
        ("Mixed 70/30", "mix_70_30"),
        ("Leistungsaufnahme, idle", "power_idle"),
        ("Schreiben, sequentiell", "sequential_write"),
        ("Latenz, lesen", "read_latency"),
        ("Warranty", None),
        ("Rand. Read (4K)", "random_read"),
        ("randon_read", None),
        ("Randon Read", None),
        ("sequental_write", None),
        ("read_latancy", None),
    ],
)
def test_labels_as_printed(printed: str, key: str | None) -> None:
    assert key_of(printed) == key
