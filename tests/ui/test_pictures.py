"""The eight main states of the page beside approved pictures: a change of look is seen.

`make pictures` approves what the page looks like now. Pictures are compared by the mean luminance
of cells larger than a letter, so that another font passes and another layout does not.
"""

import base64
import os
import re
from pathlib import Path

import pytest

from tests.ui.conftest import SMALL
from tests.ui.test_accessible import (
    answered,
    arrived,
    describe,
    drawn,
    give,
    look_for_a_drive,
)

pytestmark = pytest.mark.browser
LONG_MS = 240_000
APPROVED = Path(__file__).parent / "pictures"
APPROVING = bool(os.environ.get("APPROVE_PICTURES"))
DIFFERS = 8
"""Levels of 255 that the mean of a cell may move: the ink of another font moves most by less."""
MOST = 0.06
"""Share of the cells that may differ: monospace letters take 4 %, letters of 110 % 10 %."""
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
CLIPS = {"parts": {"x": 0, "y": 0, "width": 400, "height": 900}}
"""Of the window, where not all of it is meant."""
SHRINK = """async (png) => {
  const shot = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
  const small = document.createElement("canvas");
  const scale = Math.min(1, 320 / Math.max(shot.width, shot.height));
  small.width = Math.round(shot.width * scale);
  small.height = Math.round(shot.height * scale);
  const pen = small.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(shot, 0, 0, small.width, small.height);
  const { data } = pen.getImageData(0, 0, small.width, small.height);
  const cell = 10, across = Math.floor(small.width / cell), down = Math.floor(small.height / cell);
  const sums = new Array(across * down).fill(0);
  for (let y = 0; y < down * cell; y++) for (let x = 0; x < across * cell; x++) {
    const at = 4 * (y * small.width + x);
    sums[Math.floor(y / cell) * across + Math.floor(x / cell)] +=
      0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2];
  }
  return [small.toDataURL("image/png").split(",")[1], sums.map((sum) => sum / cell ** 2)];
}"""


@pytest.fixture
def opened(chromium, page):
    """Return a function that opens a page in a colour scheme and a window's size."""
    contexts = []

    def open_page(name, scheme="light", size="wide"):
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(LONG_MS)
        tab.goto(f"{page.address}{name}")
        tab.wait_for_load_state("load")
        return tab

    yield open_page
    for context in contexts:
        context.close()


def design(tab):
    give(tab, SMALL)
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(tab.locator("#toml")).to_have_value(re.compile("one drive"))
    arrived(tab, "#answer:not(.old) .slow:not(.old)")
    tab.locator("#report:enabled").wait_for()
    drawn(tab)


def picker(tab):
    design(tab)
    look_for_a_drive(tab)


def sheet(tab):
    tab.get_by_label("a datasheet").check()


def compared(tab):
    for count in (1, 2):
        give(tab, SMALL.replace("[[drives]]", f"[[drives]]\ncount = {count}"))
        tab.locator("#designs li").nth(count - 1).wait_for()
    answered(tab, "Compare")
    drawn(tab)


STATES = {
    "design": ("design", design, {}),
    "design-dark": ("design", design, {"scheme": "dark"}),
    "design-phone": ("design", design, {"size": "phone"}),
    "parts": ("design", picker, {}),
    "drive": ("drive", sheet, {}),
    "compare": ("compare", compared, {}),
    "choose": ("choose", lambda tab: None, {}),
    "server": ("server", describe, {}),
}


def seen(tab, state=""):
    """The window as a small PNG, and the mean luminance of its cells."""
    tab.evaluate("() => scrollTo(0, 0)")
    shot = base64.b64encode(
        tab.screenshot(animations="disabled", caret="hide", clip=CLIPS.get(state))
    ).decode()
    return cells(tab, shot)


def cells(tab, png):
    blank = tab.context.new_page()
    small, means = blank.evaluate(SHRINK, png)
    blank.close()
    return base64.b64decode(small), means


def moved(one, other):
    """Share of the cells that differ."""
    assert len(one) == len(other)
    return sum(abs(a - b) > DIFFERS for a, b in zip(one, other, strict=True)) / len(one)


def approved(tab, state):
    return cells(tab, base64.b64encode((APPROVED / f"{state}.png").read_bytes()).decode())[1]


@pytest.mark.parametrize("state", STATES)
def test_it_looks_as_approved(opened, tmp_path, state):
    name, reach, how = STATES[state]
    tab = opened(name, **how)
    reach(tab)
    png, means = seen(tab, state)
    if APPROVING:
        APPROVED.mkdir(exist_ok=True)
        (APPROVED / f"{state}.png").write_bytes(png)
    found = tmp_path / f"{state}.png"
    found.write_bytes(png)
    share = moved(means, approved(tab, state))
    assert share <= MOST, f"{100 * share:.0f} % of {state} differ; it is in {found} now"


def test_a_change_of_look_is_seen_and_another_font_is_not(opened):
    tab = opened("choose")
    means = approved(tab, "choose")
    for style, is_seen in (
        ("font-family: monospace", False), ("font-size: 110%", True), ("padding: 40px", True),
        ("background: #f0f0f0", True),
    ):  # fmt: skip
        tab.evaluate("(style) => { document.body.style = style; }", style)
        assert (moved(seen(tab)[1], means) > MOST) == is_seen, style
    tab.evaluate("() => { document.body.style = ''; document.querySelector('nav').hidden = true; }")
    assert moved(seen(tab)[1], means) > MOST


def test_the_approved_states_differ_from_one_another(opened):
    tab = opened("choose")
    whole = STATES.keys() - {"design-phone", *CLIPS}
    means = {state: approved(tab, state) for state in whole}
    alike = [
        (a, b) for a in means for b in means if a < b and moved(means[a], means[b]) <= 1.2 * MOST
    ]
    assert alike == []
