"""The picture of the server: everything is drawn once, inside, and nothing over anything else."""

import dataclasses
import itertools
from xml.etree import ElementTree

import pytest

from nvmesim.measure.figures import Rebuild
from nvmesim.show.picture import loads, picture
from tests.show.report_example import result

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = [(1, 1, False), (8, 2, False), (8, 2, True), (24, 2, False), (24, 2, True), (48, 4, True)]


def drawn(n_drives, n_sockets, adapters):
    return ElementTree.fromstring(picture(result(n_drives, n_sockets, adapters=adapters)))


def boxes(root):
    found = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "box"]
    return [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in found]


def texts(root):
    return ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(("n", "sockets", "adapters"), SHAPES)
def test_every_part_is_drawn_once_inside_and_apart_with_its_texts(n, sockets, adapters):
    root = drawn(n, sockets, adapters)
    tips = [t.text.split(":")[0] for t in root.iter(f"{SVG}title") if t.text.startswith("drive")]
    drives = [name for tip in tips for name in tip.split(", ")]
    assert sorted(drives) == sorted(f"drive{i}" for i in range(n))
    shown = texts(root)
    for i in range(sockets):
        assert shown.count(f"socket {i}") == 1
    if adapters:
        assert shown.count("quad0") == 1
    _, _, width, height = (float(v) for v in root.get("viewBox").split())
    found = boxes(root)
    for x, y, w, h in found:
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for one, two in itertools.combinations(found, 2):
        apart_x = one[0] + one[2] <= two[0] or two[0] + two[2] <= one[0]
        apart_y = one[1] + one[3] <= two[1] or two[1] + two[3] <= one[1]
        assert apart_x or apart_y, (one, two)
    spans = {}
    for text in root.iter(f"{SVG}text"):
        x, size = float(text.get("x")), float(text.get("font-size"))
        width = len("".join(text.itertext())) * size * 0.56
        start = x - width if text.get("text-anchor") == "end" else x
        spans.setdefault(text.get("y"), []).append((start, start + width))
    for line in spans.values():
        for (_, end), (start, _) in itertools.pairwise(sorted(line)):
            assert end <= start + 1


def test_equal_drives_share_a_row_and_a_failed_one_keeps_its_own():
    few, many = (texts(ElementTree.fromstring(picture(result(n, 1, load=0.5)))) for n in (8, 24))
    assert {f"drive{i}" for i in range(8)} <= set(few)
    assert "24 × drive0–23" in many
    assert not {f"drive{i}" for i in range(24)} & set(many)
    whole = result(24, 1, load=0.5)
    (volume,) = whole.resolved.volumes
    degraded = dataclasses.replace(volume, degraded=(3,))
    resolved = dataclasses.replace(whole.resolved, volumes=(degraded,))
    shown = texts(ElementTree.fromstring(picture(dataclasses.replace(whole, resolved=resolved))))
    assert "23 × drive0–2, 4–23" in shown
    assert "drive3" in shown
    assert any(t.startswith("failed · ") for t in shown)
    rebuilding = result(4)
    rebuilding = dataclasses.replace(rebuilding, rebuild=Rebuild("volume0", "drive2", 2e8, 2.2))
    assert picture(rebuilding).count("rebuilt · ") == 2  # the row and its tip
    assert "rebuilt" not in picture(result(4))


def test_a_pipe_is_as_thick_as_the_link_is_fast_and_filled_by_its_load():
    root = drawn(24, 2, True)
    heights = {float(r.get("height")) for r in root.iter(f"{SVG}rect") if r.get("class") == "pipe"}
    port, uplink = sorted(h for h in heights if h < 30)[:2]
    assert uplink / port == pytest.approx(4, rel=0.02)  # x16 against x4


def test_loads_and_crossing_traffic_are_said():
    busy = result(8)
    shown = " ".join(texts(ElementTree.fromstring(picture(busy))))
    assert "0 to 1: 6.14 GB/s, 18 %" in shown
    assert "1 to 0: 19.4 GB/s, 57 %" in shown
    stations = tuple(s for s in busy.stations if s.resource != "interconnect")
    assert "nothing crosses" in picture(dataclasses.replace(busy, stations=stations))
    found = loads(result(8, adapters=True))
    assert found["crossing"] == {(0, 1): 0.18, (1, 0): 0.57}
    assert set(found["uplink"]) == {(0, "up"), (0, "down"), (1, "up"), (1, "down")}
    assert len(found["port"]) == 16
    assert set(found["shared"]) == {"submitting threads", "data engine"}


def test_names_are_escaped_and_cut():
    odd = result(2, 1)
    drives = tuple(
        dataclasses.replace(d, name='<b>"drive" & a very long name of a drive')
        for d in odd.resolved.drives
    )
    odd = dataclasses.replace(odd, resolved=dataclasses.replace(odd.resolved, drives=drives))
    root = ElementTree.fromstring(picture(odd))
    assert sum(t.startswith('<b>"drive"') and t.endswith("…") for t in texts(root)) == 2
