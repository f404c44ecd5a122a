"""A notebook in a live JupyterLab: it runs, and a slider that moves simulates anew."""

import json
import re
import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.long]

SMALL = """
import nvmesim as ns

scenario = ns.Scenario(
    server={"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-platinum-8380"}]},
    drives=[{"profile": "intel-p4610-1.6tb", "count": 2}], volume={"raid": "raid0"},
    workload={"threads": 16, "outstanding": 16},
)
"""
CHART = """
frame = ns.sweep(scenario, {"drives.0.count": [2, 4]}, requests=5000, workers=1)
ns.charts.scaling(frame, "drives.0.count")
"""
SLIDERS = """
ns.explore(scenario, {"drives.0.count": (2, 12), "workload.0.read": (0.0, 1.0, 0.1)})
"""


def notebook(*cells):
    found = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": text.strip(),
         "outputs": [], "execution_count": None}
        for n, text in enumerate(cells)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": found, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def answer(lab):
    return lab.page.locator(".nvmesim-explore").first.inner_text()


def kiops(text):
    """The figure at the top of the answer."""
    found = re.match(r"([\d,.]+)([kM]) IOPS", text)
    return float(found[1].replace(",", "")) * {"k": 1.0, "M": 1000.0}[found[2]]


def after(lab, before):
    """The answer once it is another than *before*."""
    lab.page.wait_for_function(
        "before => document.querySelector('.nvmesim-explore').innerText !== before", arg=before
    )
    return answer(lab)


def test_a_slider_simulates_anew(server, open_notebook):
    (server.folder / "live.ipynb").write_text(json.dumps(notebook(SMALL, CHART, SLIDERS)))
    lab = open_notebook("live.ipynb")
    lab.run_all(3)
    assert lab.errors() == []
    lab.page.locator(".nvmesim-explore").first.wait_for()
    drawn = lab.page.locator(".jp-OutputArea-output[data-mime-type='image/svg+xml'] img")
    assert drawn.count() == 1
    assert drawn.first.evaluate("image => image.naturalWidth") > 400
    two = answer(lab)
    handle = lab.page.locator(".jp-OutputArea-output .noUi-handle").first
    handle.focus()
    started = time.monotonic()
    lab.page.keyboard.press("ArrowRight")
    three = after(lab, two)
    seen_ms = 1000 * (time.monotonic() - started)
    for _ in range(3):
        before = answer(lab)
        lab.page.keyboard.press("ArrowRight")
        six = after(lab, before)
    assert re.search(r"^2\t1\.0\t", six, re.M)  # what was before
    assert kiops(two) < kiops(three) < kiops(six)
    assert kiops(six) > 1.5 * kiops(two)
    took = int(re.search(r"simulated in (\d+) ms", six)[1])
    print(f"a step to the next drive: {took} ms in the kernel, {seen_ms:.0f} ms until it is seen")
    assert lab.elsewhere == []


def test_a_cell_that_fails_is_seen(server, open_notebook):
    (server.folder / "fails.ipynb").write_text(json.dumps(notebook("1 / 0", "2")))
    lab = open_notebook("fails.ipynb")
    lab.run_all(2)
    assert "ZeroDivisionError" in lab.errors()[0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [f"{n:02}" for n in range(1, 9)])
def test_every_notebook_runs_in_the_browser(server, open_notebook, number):
    book = next(server.folder.glob(f"{number}-*.ipynb"))
    cells = [c for c in json.loads(book.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    lab = open_notebook(book.name)
    started = time.monotonic()
    lab.run_all(len(cells))
    print(f"{book.name}: {time.monotonic() - started:.0f} s")
    assert lab.errors() == []
    assert lab.elsewhere == []
