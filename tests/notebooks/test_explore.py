"""Sliders: what they show, and what is said of bad ranges."""

import re
import sys

import pytest

import nvmesim as ns
from nvmesim.errors import InputError
from tests.children import until

widgets = pytest.importorskip("ipywidgets")


def scenario(**load):
    return ns.Scenario(
        name="six",
        server={"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-platinum-8380"}]},
        drives=[{"profile": "intel-p4610-1.6tb", "count": 2}],
        volume={"raid": "raid0"},
        workload={"threads": 16, "outstanding": 16, **load},
    )


def words(panel):
    return re.sub("<[^>]+>", " ", panel.children[-1].value)


def kiops(panel):
    found = re.search(r"([\d,.]+)([kM]) *IOPS", words(panel))
    return float(found[1].replace(",", "")) * {"k": 1, "M": 1000}[found[2]]


def passed(panel):
    """Rows of the positions before the one that is shown, the last first."""
    body = panel.children[-1].value.split("before:")[1].split("<tbody>")[1]
    rows = body.split("</tbody>")[0].split("</tr>")[:-1]
    return [re.sub("<[^>]+>", " ", row).split() for row in rows]


@pytest.fixture(scope="module")
def panel():
    return ns.explore(
        scenario(),
        {
            "drives.0.count": (2, 40),
            "workload.0.read": (0.5, 1.0, 0.1),
            "volume.raid": ["raid0", "raid10"],
        },
        requests=4000,
    )


def test_controls_and_figures_are_those_of_the_scenario(panel):
    slider, share, menu = panel.children[:-1]
    assert (slider.value, slider.min, slider.max, slider.step) == (2, 2, 40, 1)
    assert (share.value, menu.value) == (1.0, "raid0")
    assert [c.description for c in panel.children[:-1]] == ["drives", "read", "raid"]
    result = ns.simulate(scenario(), requests=4000, reliefs=False)
    panel.children[0].value = 3
    panel.children[0].value = 2
    assert kiops(panel) == pytest.approx(result.total.iops.value / 1e3, rel=1e-3)
    panel.children[0].value = 2
    before = kiops(panel)
    panel.children[0].value = 6
    assert kiops(panel) > 1.5 * before
    assert passed(panel)[0][:1] == ["2"]


def test_a_move_is_followed_by_a_first_look_and_then_refined():
    shown = ns.explore(scenario(), {"drives.0.count": (2, 4)})
    seen = []
    shown.children[-1].observe(lambda change: seen.append(change["new"]), names="value")
    shown.children[0].value = 3
    assert "4,000 requests" in seen[0]
    assert "refining" in seen[0]
    assert "how sure: …" in seen[0]  # it is not known yet
    assert "probably" not in seen[0]
    assert "95 % within" not in seen[0]
    until(lambda: len(seen) >= 2)
    assert "refining" not in seen[1]
    assert ", probably" in seen[1]
    assert [row[0] for row in passed(shown)] == ["2"]


def test_what_is_impossible_unknown_or_hostile_is_said(panel):
    panel.children[0].value = 39
    assert "PCIe lanes" in words(panel)
    panel.children[0].value = 4
    assert kiops(panel) > 0
    shown = ns.explore(scenario(), {"drives.0.cuont": (2, 4)}, requests=1000)
    assert "count" in words(shown)
    shown = ns.explore(scenario(), {"drives.0.count": [2, "<b>&"]}, requests=1000)
    shown.children[0].value = "<b>&"
    assert "<b>&" not in shown.children[-1].value
    assert "&lt;b&gt;" in shown.children[-1].value


@pytest.mark.parametrize(
    ("said", "words"), [((4, 4), "is empty"), ("2..8", "is not a range"), ([], "is not a range")]
)
def test_bad_ranges(said, words):
    with pytest.raises(InputError, match=words):
        ns.explore(scenario(), {"drives.0.count": said})


def test_without_ipywidgets_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(InputError, match="pip install .*ipywidgets"):
        ns.explore(scenario(), {"drives.0.count": (2, 4)})
