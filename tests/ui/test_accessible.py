"""axe-core over every page, with its answer, in both colour schemes and both widths."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.ui.conftest import LSCPU, SMALL

pytestmark = pytest.mark.browser
LONG_MS = 120_000


@pytest.fixture(params=[("light", 1600), ("dark", 800)], ids=["light", "dark"])
def tab(request, chromium):
    scheme, width = request.param
    size = {"width": width, "height": 900}
    context = chromium.new_context(viewport=size, color_scheme=scheme)
    opened = context.new_page()
    opened.set_default_timeout(LONG_MS)
    yield opened
    context.close()


def found(tab):
    """Each violation with the elements that have it."""
    report = Axe().run(tab).response
    assert report["passes"], "axe looked at nothing"
    return [
        (rule["impact"], rule["id"], [node["target"] for node in rule["nodes"]])
        for rule in report["violations"]
    ]


def answered(tab, button, place="answer"):
    """Press and wait for what comes; the work may end before anybody sees that it began."""
    tab.locator(f"#{place}").evaluate("(place) => place.classList.add('old')")
    tab.get_by_role("button", name=button, exact=True).click()
    arrived(tab, f"#{place}:not(.old)", place)
    tab.locator(f"#{place}-cancel").wait_for(state="hidden")


def arrived(tab, css, place="answer"):
    """Wait until *css* is there; what failed is said at once, and not waited for."""
    problem = tab.locator(f"#{place}-error")
    tab.locator(css).or_(problem).filter(visible=True).first.wait_for()
    assert not problem.is_visible(), problem.inner_text()


def give(tab, text, name="x.toml"):
    """Choose a file of *text* where designs are loaded."""
    tab.locator("#load").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
    )


def describe(tab):
    """Paste a dump on the Server page, and wait for its scenario."""
    tab.get_by_label("Output 1").fill(LSCPU)
    tab.get_by_role("button", name="Describe").click()
    tab.get_by_role("button", name="Open in Design").wait_for()


def look_for_a_drive(tab):
    """Open the list of drives of the Design page."""
    tab.locator('[id="c-drives.profile"]').click()
    tab.locator('[id="l-drives.profile"] [role=option]').first.wait_for()


def drawn(tab):
    tab.wait_for_function(
        "() => { const all = document.querySelectorAll('main .chart'); return all.length > 0 &&"
        " all.length === document.querySelectorAll('main .chart svg.marks').length; }"
    )


def test_design(tab, page):
    tab.goto(f"{page.address}design")
    tab.locator("#answer .slow").wait_for()
    drawn(tab)
    tab.locator("details summary").first.click()
    assert found(tab) == []
    look_for_a_drive(tab)
    assert found(tab) == []


def test_drive(tab, page):
    tab.goto(f"{page.address}drive")
    assert found(tab) == []
    tab.get_by_label("a table of points").check()
    assert found(tab) == []
    tab.get_by_label("a datasheet").check()
    for name, text in {
        "Capacity": "3.84 TB", "Link": "PCIe 4.0 x4", "Random read, 4 KiB": "1,000K IOPS",
    }.items():  # fmt: skip
        tab.locator("#way-sheet").get_by_label(name).fill(text)
    answered(tab, "Calibrate")
    tab.get_by_role("link", name="Use it in the design").wait_for()
    drawn(tab)
    assert found(tab) == []


def test_compare(tab, page):
    tab.goto(f"{page.address}compare")
    assert found(tab) == []
    for depth in (4, 8):
        give(tab, SMALL.replace("outstanding = 4", f"outstanding = {depth}"))
        tab.locator("#designs li").nth(depth // 4 - 1).wait_for()
    answered(tab, "Compare")
    drawn(tab)
    assert found(tab) == []


@pytest.mark.slow
def test_choose(tab, page):
    tab.goto(f"{page.address}choose")
    assert found(tab) == []
    answered(tab, "Find the largest load", "best-answer")
    drawn(tab)
    assert found(tab) == []


def test_server(tab, page):
    tab.goto(f"{page.address}server")
    describe(tab)
    assert found(tab) == []


def test_check(tab, page):
    tab.goto(f"{page.address}check")
    tab.get_by_role("button", name="Put an example there").click()
    assert found(tab) == []
