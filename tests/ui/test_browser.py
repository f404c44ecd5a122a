"""A whole session in Chromium: design, slider, cancel, files, tabs, reload, hostile names."""

import re
import tomllib
from pathlib import Path

import pytest

from nvmesim.ui.answer import designs_in
from tests.ui.conftest import SMALL
from tests.ui.test_accessible import arrived, give

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect
LONG_MS = 120_000
FIO = Path(__file__).parents[1] / "cli" / "data" / "qd4.json"
CAPTURE = "op,block_size,jobs,iodepth,iops,lat_mean_us\n" + "\n".join(
    f"randread,4 KiB,1,{qd},{iops},{1e6 * qd / iops:.1f}"
    for qd, iops in ((1, 11_500), (4, 45_000), (16, 160_000), (64, 420_000), (256, 600_000))
)


@pytest.fixture
def tab(chromium, page):
    """A new tab at the design page; what it logs or loads from elsewhere fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(LONG_MS)
    said, asked = [], []
    opened.on("pageerror", lambda e: said.append(str(e)))
    opened.on("console", lambda m: said.append(m.text) if "Security Policy" in m.text else None)
    opened.on("request", lambda r: asked.append(r.url))
    opened.goto(page.address)
    yield opened
    context.close()
    assert said == []
    own = (page.address, "data:", f"blob:{page.origin}")
    assert [url for url in asked if not url.startswith(own)] == []


def outstanding(tab, depth):
    number = tab.get_by_label("Outstanding per thread, as a number")
    number.fill(depth)
    number.press("Enter")


def report(tab):
    """The text of the report that is downloaded."""
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Download report").click()
    return saved.value.path().read_text("utf-8")


def overflow(tab):
    """Pixels by which the page is wider than the window."""
    return tab.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def settled(tab):
    arrived(tab, "#answer:not(.old) .slow:not(.old)")
    return tab.locator("#answer .cards").inner_text()


def load(tab, text):
    give(tab, text)
    # no promise of the page: those are waited for without an end
    tab.wait_for_function("(text) => document.getElementById('toml').value === text", arg=text)


def test_a_design_session(tab):
    load(tab, SMALL)
    before = settled(tab)
    outstanding(tab, "16")
    tab.locator("#answer .wait").first.wait_for()
    assert settled(tab) != before
    assert "outstanding = 16" in tab.locator("#toml").input_value()
    charts = tab.locator("#answer .chart svg.marks")
    charts.first.wait_for()
    assert charts.count() == tab.locator("#answer .chart").count() >= 3
    tab.get_by_role("button", name="Download report").click(trial=True)
    tab.get_by_text("The scenario (TOML)").click()
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Download TOML").click()
    assert "outstanding = 16" in saved.value.path().read_text("utf-8")
    assert "one drive" in report(tab)


def test_a_reload_and_a_link_bring_the_design_back(tab, chromium):
    load(tab, SMALL.replace("one drive", "kept by its link"))
    settled(tab)
    tab.reload()
    tab.locator("#answer .cards").wait_for()
    assert "kept by its link" in tab.locator("#toml").input_value()
    other = chromium.new_context().new_page()
    other.goto(tab.url)
    other.locator("#answer .cards").wait_for(timeout=LONG_MS)
    assert "kept by its link" in other.locator("#toml").input_value()
    other.context.close()


def test_cancel_keeps_the_answer_so_far(tab):
    tab.locator("#answer .cards").wait_for()
    tab.get_by_role("button", name="Cancel").click()
    tab.get_by_text("Cancelled; what is shown is not complete.").wait_for()
    assert "…" not in tab.locator("#answer .fast").inner_text()
    assert "Goal 1 ms: not known" in tab.locator("#answer .stick").inner_text()
    assert tab.locator("#answer .old").count() == 0
    assert tab.locator("#answer .cards").is_visible()
    assert not tab.get_by_role("button", name="Cancel").is_visible()


def test_a_design_that_cannot_be_leaves_nothing_that_waits(tab):
    tab.locator("#answer .cards").wait_for()
    load(tab, SMALL.replace("[[drives]]", "[[drives]]\ncount = 60"))
    tab.get_by_role("alert").filter(has_text="lanes").wait_for()
    assert "…" not in tab.locator("#answer .fast").inner_text()


def test_bad_files_are_a_sentence_and_nothing_is_lost(tab):
    load(tab, SMALL)
    settled(tab)
    for name, text, said in (
        ("x.toml", "this is not TOML", "not TOML"),
        ("x.toml", 'drives = [{ profile = "/etc/passwd.toml" }]', "opens no files"),
        ("large.toml", "#" * 300_000, "larger than 256 KiB"),
    ):
        give(tab, text, name)
        tab.get_by_role("alert").filter(has_text=said).wait_for()
        assert tab.locator("#toml").input_value() == SMALL
        assert tab.locator("#answer .cards").is_visible()


def test_the_fields_of_a_goal_and_its_toml_are_one(tab):
    tab.get_by_role("link", name="Choose").click()
    tab.wait_for_url("**/choose")  # until it is loaded no script hears what is chosen
    toml, limit = tab.locator("#goal"), tab.locator('[data-key="constraints/p99"] input')
    tab.get_by_label("Of those, take the").select_option("price")
    price = tab.get_by_label("kioxia-cd6-r-15.36tb, EUR each")
    price.fill("400")
    price.press("Tab")
    expect(toml).to_have_value(re.compile('tb" = 400'))
    assert 'minimize = "price"' in toml.input_value()
    toml.fill(toml.input_value().replace('p99 = "1 ms"', 'p99 = "3 ms"'))
    toml.press("Tab")
    expect(limit).to_have_value("3 ms")
    toml.fill("no goal")
    toml.press("Tab")
    tab.get_by_role("alert").filter(has_text="not TOML").wait_for()
    assert price.input_value() == "400"
    tab.reload()
    expect(limit).to_have_value("3 ms")


def test_hostile_names_do_nothing(tab):
    evil = "<img src=x onerror=document.title='owned'>"
    load(tab, SMALL.replace("one drive", evil))
    settled(tab)
    tab.get_by_role("button", name="Add to Compare").click()
    tab.get_by_role("link", name="Compare").click()
    tab.get_by_text(evil).first.wait_for()
    assert tab.title() == "Compare · nvmesim"
    assert tab.locator("img").count() == 0


def test_a_dropped_dump_fills_a_box(tab):
    tab.get_by_role("link", name="Server").click()
    tab.wait_for_load_state("load")
    tab.locator("#dumps").evaluate(
        """(place) => {
          const data = new DataTransfer();
          data.items.add(new File(["CPU(s): 8"], "lscpu.txt"));
          data.items.add(new File(["{}"], "nvme.json"));
          place.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }"""
    )
    tab.get_by_label("Output 2: nvme.json").wait_for()
    assert tab.get_by_label("Output 1").input_value() == "CPU(s): 8"


def test_the_whole_session_by_keyboard(tab):
    """A design, another level, both to Compare, and the comparison, with no mouse."""
    load(tab, SMALL.replace("[[workload]]", '[volume]\nraid = "raid0"\n[[workload]]', 1))
    settled(tab)
    tab.get_by_label("RAID level").focus()
    tab.get_by_role("button", name="Add to Compare").press("Enter")
    tab.get_by_role("status").filter(has_text="Added; 1 to compare.").wait_for()
    tab.locator('[id="c-workload.0.outstanding"]').press("ArrowRight")
    tab.locator("#answer .wait").first.wait_for()
    tab.get_by_role("button", name="Add to Compare").press("Space")
    tab.get_by_role("status").filter(has_text="Added; 2 to compare.").wait_for()
    tab.get_by_role("link", name="Compare").press("Enter")
    tab.locator("#designs li").nth(1).wait_for()
    tab.get_by_role("button", name="Compare", exact=True).press("Enter")
    row = tab.get_by_role("row", name="Outstanding per thread")
    row.wait_for()
    assert "4 5" in " ".join(row.inner_text().split())


def test_two_tabs_do_not_disturb_each_other(tab):
    second = tab.context.new_page()
    second.set_default_timeout(LONG_MS)
    second.goto(tab.url.partition("#")[0])
    load(tab, SMALL)
    load(second, SMALL.replace("outstanding = 4", "outstanding = 32"))
    assert settled(tab) != settled(second)
    assert "outstanding = 4\n" in tab.locator("#toml").input_value()


def test_a_dropped_capture_becomes_a_drive_of_the_design(tab, page):
    tab.get_by_role("link", name="Drive").click()
    tab.wait_for_load_state("load")  # until then no script hears the drop
    tab.locator("#way-files").evaluate(
        """(place, text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "mine.csv"));
          data.items.add(new File(["no capture at all"], "holiday.txt"));
          place.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }""",
        CAPTURE,
    )
    tab.get_by_role("alert").filter(has_text="holiday.txt").wait_for()
    assert tab.locator("#dropped li").count() == 1
    tab.get_by_label("Name of the drive").fill("mine")
    tab.get_by_role("button", name="Calibrate").click()
    tab.get_by_role("link", name="Use it in the design").click(timeout=3 * LONG_MS)
    tab.locator("#answer .cards").wait_for()
    assert tab.locator('[id="c-drives.profile"]').input_value() == "mine"
    assert "Copy link" in tab.get_by_role("group", name="This design").inner_text()


@pytest.mark.long
def test_pasted_rows_of_a_server_are_explained_on_a_phone(tab, page):
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto(f"{page.address}check")
    tab.get_by_role("button", name="Check").click()
    tab.get_by_role("alert").filter(has_text="drop captures").wait_for()
    tab.get_by_label("The server (TOML)").fill(SMALL.replace("threads = 1", "threads = 4"))
    tab.get_by_role("button", name="Put an example there").click()
    tab.set_default_timeout(3 * LONG_MS)
    tab.get_by_role("button", name="Check").click()
    arrived(tab, "#answer table .off")
    assert tab.locator("#answer table").first.locator("tbody tr").count() == 2
    assert tab.locator("#answer dl").count() >= 1
    assert overflow(tab) == 0
    assert "nvmesim diagnose" in report(tab)


def test_a_capture_is_dropped_and_the_server_checked(tab, page):
    tab.goto(f"{page.address}check")
    tab.get_by_label("The server (TOML)").fill(SMALL)
    chosen = tab.locator("input[type=file]")
    chosen.set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"dear diary"})
    tab.get_by_role("alert").filter(has_text="a.txt").wait_for()
    chosen.set_input_files(FIO)
    tab.get_by_text("qd4.json: fio-json").wait_for()
    tab.set_default_timeout(3 * LONG_MS)
    tab.get_by_role("button", name="Check", exact=True).click()
    arrived(tab, "#answer tbody tr")
    row = tab.locator("#answer table").first.locator("tbody tr")
    row.filter(has_text="qd4").wait_for()
    assert row.count() == 1
    assert "Measured 20k IOPS" in tab.locator("#answer").inner_text()
    assert "qd4" in report(tab)


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_is_wider_than_the_window(tab, page, width):
    tab.set_viewport_size({"width": width, "height": 900})
    for name in ("drive", "compare", "choose", "server", "check", "design"):
        tab.goto(f"{page.address}{name}")
        if name == "design":
            tab.locator("#answer .cards").wait_for()
        assert overflow(tab) == 0, name


def test_the_keyboard_goes_through_in_the_order_of_the_page(tab):
    tab.locator("#answer .cards").wait_for()
    tab.evaluate("() => document.activeElement.blur()")
    tab.keyboard.press("Tab")
    assert tab.evaluate("() => document.activeElement.className") == "skip"
    tops = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        where = "() => { const a = document.activeElement; return [a.tagName, a.id] }"
        tops.append(tuple(tab.evaluate(where)))
    assert [t[0] for t in tops[:6]] == ["A"] * 6
    assert tops[6][1] == "c-server.platform"
    assert len(set(tops[6:])) > 4


def test_sliders_follow_the_hand(tab):
    """Eight presses faster than an answer comes: none is lost, and no answer moves it back."""
    load(tab, SMALL)
    settled(tab)
    slider = tab.locator('[id="c-workload.0.outstanding"]')
    slider.focus()
    for _ in range(8):
        tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(40)
    assert slider.input_value() == "12"
    settled(tab)
    assert slider.input_value() == "12"
    assert "outstanding = 12" in tab.locator("#toml").input_value()


def test_nothing_narrow_is_shown_before_the_interval_is_known(tab):
    """Each state of the answer is looked at: figures without their interval have no verdict."""
    load(tab, SMALL)
    settled(tab)
    tab.evaluate(
        """() => {
          window.states = [];
          const look = () => {
            const at = (css) => document.querySelectorAll(`#answer ${css}`).length;
            window.states.push([at(".fast .wait") > 0, at("p.met, p.missed, p.unsure"),
              at("figure.bars:not(.old)")]);
          };
          const place = document.querySelector("#answer");
          new MutationObserver(look).observe(place, { childList: true, subtree: true });
        }"""
    )
    outstanding(tab, "16")
    tab.wait_for_function("() => window.states.some(([waits]) => waits)")
    settled(tab)
    states = tab.evaluate("() => window.states")
    assert all(verdicts == bars == 0 for waits, verdicts, bars in states if waits)
    assert states[-1][:2] == [False, 1]
    assert "with a probability of" in tab.locator("#answer p.goal").inner_text()


def test_a_part_is_found_by_its_name(tab):
    load(tab, SMALL)
    picker = tab.locator('[id="c-drives.profile"]')
    picker.click()
    picker.fill("pm1743 15")
    offered = tab.locator('[id="l-drives.profile"] [role=option]')
    assert offered.count() == 1
    assert "pcie5 x4" in offered.inner_text()
    picker.press("Enter")
    expect(tab.locator("#toml")).to_have_value(re.compile("samsung-pm1743-15.36tb"))
    assert picker.input_value() == "Samsung PM1743"
    tab.locator('[id="c-server.platform"]').fill("r760")
    tab.locator('[id="c-server.platform"]').press("Enter")
    expect(tab.locator("#toml")).to_have_value(re.compile('platform = "dell-r760"'))


def test_back_and_undo_are_designs(tab):
    load(tab, SMALL)
    toml = tab.locator("#toml")
    for value in ("16", "64"):
        tab.wait_for_timeout(1100)  # what follows within a second is one step
        outstanding(tab, value)
        expect(toml).to_have_value(re.compile(f"outstanding = {value}"))
    tab.get_by_role("button", name="Undo").click()
    expect(toml).to_have_value(re.compile("outstanding = 16"))
    tab.go_back()
    expect(toml).to_have_value(re.compile("outstanding = 4"))
    tab.go_forward()
    expect(toml).to_have_value(re.compile("outstanding = 16"))


def test_clearing_a_rate_keeps_the_threads(tab):
    load(tab, SMALL.replace("threads = 1", "threads = 3"))
    rate = tab.get_by_label("Fixed rate")
    rate.fill("10k/s")
    rate.press("Enter")
    expect(tab.locator("#toml")).to_have_value(re.compile('rate = "10k/s"'))
    rate.fill("")
    rate.press("Enter")
    expect(tab.locator("#toml")).to_have_value(re.compile("threads = 3"))


def test_typed_toml_is_not_overwritten_and_a_broken_link_is_said(tab):
    load(tab, SMALL)
    tab.get_by_text("The scenario (TOML)").click()
    tab.locator("#toml").fill("# by hand")
    outstanding(tab, "16")
    settled(tab)
    assert tab.locator("#toml").input_value() == "# by hand"
    other = tab.context.new_page()
    other.goto(tab.url[:-9])
    other.get_by_role("alert").filter(has_text="link is broken").wait_for()
    other.locator("#answer .slow").wait_for()
    assert other.get_by_role("alert").filter(has_text="link is broken").is_visible()


def test_two_quotes_leave_as_one_file_and_come_back(tab, tmp_path):
    load(tab, SMALL)
    tab.get_by_role("button", name="Add to Compare").click()
    load(
        tab, SMALL.replace("one drive", "two drives").replace("[[drives]]", "[[drives]]\ncount = 2")
    )
    tab.get_by_role("button", name="Add to Compare").click()
    tab.get_by_role("link", name="Compare").click()
    tab.wait_for_load_state("load")
    tab.get_by_label("Price, EUR").first.fill("1000")
    tab.get_by_label("Price, EUR").first.press("Tab")
    tab.get_by_role("button", name="Compare", exact=True).click()
    tab.get_by_role("row", name="IOPS per EUR").wait_for()
    assert "2 does more IOPS than 1 with a probability of" in tab.locator("#answer").inner_text()
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Download as one HTML file").click()
    file = tmp_path / "quotes.html"
    saved.value.save_as(file)
    assert [tomllib.loads(t)["name"] for t in designs_in(file)] == ["one drive", "two drives"]
    with tab.expect_download() as printed:
        tab.get_by_role("button", name="PDF").click()
    pdf = printed.value.path().read_bytes()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type ?/Page\b", pdf)) == 1
    alone = tab.context.browser.new_page()
    alone.goto(f"file://{file}")
    assert alone.get_by_role("row", name="IOPS per EUR").is_visible()
    alone.context.close()


def test_a_change_that_would_help_is_applied(tab):
    """md's one thread holds this array: its workers are a button, and then in the design."""
    tab.set_default_timeout(3 * LONG_MS)
    raid5 = SMALL.replace("[[workload]]", '[volume]\nraid = "raid5"\n[[workload]]\nread = 0.0', 1)
    load(tab, raid5.replace("[[drives]]", "[[drives]]\ncount = 8").replace("4\nslo", "64\nslo"))
    settled(tab)
    assert "<button" not in tab.locator("#answer").inner_text()
    tab.get_by_role("button", name="Apply: 8 md workers").click()
    expect(tab.locator("#toml")).to_have_value(re.compile("group_thread_cnt = 8"), timeout=LONG_MS)


def test_what_does_not_fit_says_so_beside_its_control(tab):
    pair = SMALL.replace("[[workload]]", '[volume]\nraid = "raid0"\n[[workload]]')
    load(tab, pair.replace("[[drives]]", "[[drives]]\ncount = 2"))
    engine = tab.locator('[id="c-volume.engine"]')
    remark = tab.locator('[data-key="volume.engine"] .remark')
    engine.select_option("intel-vroc")
    remark.get_by_text("runs on Windows: take a Windows stack, or Linux md").wait_for()
    engine.select_option("linux-md")
    remark.wait_for(state="hidden")
