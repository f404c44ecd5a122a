"""The report in a browser: wide and narrow, by keyboard, on paper, and with no network at all."""

import pytest

from nvmesim.show.report import page
from tests.show.report_example import result

pytestmark = pytest.mark.browser
WIDE, PHONE = 1280, 390
LONG = "the front left upper backplane of the rack beside the door, third from the top"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of 24 drives over two sockets, with names that are too long."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    html = page(result(24, adapters=True, name=LONG), scenario_text="name = 1\n")
    file.write_text(html, encoding="utf-8")
    return file


@pytest.fixture
def open_page(chromium, report):
    """Open the report at a width; whatever it asks for is noted, and fails."""
    contexts = []

    def opened(width, **how):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, offline=True, **how
        )
        contexts.append(context)
        tab = context.new_page()
        tab.asked, tab.said = [], []
        tab.on("request", lambda r: tab.asked.append(r.url))
        tab.on("console", lambda m: tab.said.append(m.text))
        tab.goto(report.as_uri())
        tab.wait_for_function(
            "document.querySelectorAll('svg.marks').length"
            " === document.querySelectorAll('.chart').length"
        )
        return tab

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_nothing_is_wider_than_the_screen_nor_cut_and_nothing_is_asked_for(open_page, width):
    tab = open_page(width)
    assert tab.asked == [tab.url]
    assert tab.said == []
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.evaluate(wider) == 0
    firsts = tab.locator("tbody th").evaluate_all("all => all.map(c => c.offsetWidth)")
    assert min(firsts) > 60, "a first column of single letters"
    charts = tab.locator(".chart svg").evaluate_all(
        "all => all.map(s => [s.getBoundingClientRect().width, s.parentElement.clientWidth])"
    )
    assert all(drawn <= room + 1 for drawn, room in charts)
    outside = tab.locator(".chart").evaluate_all(
        """all => all.flatMap(chart => {
          const room = chart.getBoundingClientRect();
          return [...chart.querySelectorAll("text")].filter(t => t.textContent.trim()).filter(t => {
            const box = t.getBoundingClientRect();
            return box.left < room.left - 2 || box.right > room.right + 2;
          }).map(t => t.textContent);
        })"""
    )
    assert outside == []


def test_a_reader_hears_and_the_keyboard_reaches_all(open_page):
    tab = open_page(WIDE)
    heard = tab.locator("figure > [role=img], svg.nvmesim-server[role=img]")
    assert heard.count() == tab.locator("figure").count()
    said = heard.evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert all(len(words) > 20 for words in said)
    assert any("drive dies" in words for words in said)
    assert tab.get_by_role("main").count() == 1
    assert tab.get_by_role("navigation").get_by_role("link").count() == tab.locator("h2").count()
    regions = tab.get_by_role("region").evaluate_all("all => all.map(e => e.ariaLabel)")
    assert len(regions) == len(set(regions)) == tab.locator(".scroll:visible").count()
    assert tab.get_by_role("rowheader").count() == tab.locator("tbody tr:visible").count()
    tab = open_page(PHONE)
    region = tab.get_by_role("region", name="Latency", exact=True)
    region.focus()
    before = region.evaluate("e => e.scrollLeft")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("before => document.activeElement.scrollLeft > before", arg=before)
    link = tab.get_by_role("navigation").get_by_role("link", name="Parts under this load")
    link.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**#parts-under-this-load")


def test_on_paper_there_is_no_furniture(open_page):
    tab = open_page(WIDE, color_scheme="dark")
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert dark != "rgb(255, 255, 255)"
    assert not tab.locator("nav").is_visible()
    assert not tab.locator("details").first.is_visible()
    assert tab.pdf(format="A4")[:4] == b"%PDF"
