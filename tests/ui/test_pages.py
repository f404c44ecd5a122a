"""A design, a drive, a comparison, a choice, a server: what the pages ask, answered in process."""

import csv
import io
import re
import tomllib

import pytest

from nvmesim.errors import InputError
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict, to_text
from nvmesim.show.page import template
from nvmesim.ui import controls
from nvmesim.ui.app import PAGES
from nvmesim.ui.controls import parts
from tests.ui.conftest import LSCPU, SMALL


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_a_heading_and_names_itself(page, name):
    text = page.get(name).text
    assert text.count("<h1>") == 1
    assert 'aria-current="page"' in text


def test_a_design_starts_moves_and_ends(page):
    first = page.post("api/design", {}).json()
    assert first["controls"]["drives.count"] == 8
    look = page.news(first["job"])
    assert "IOPS" in look["html"]
    assert 'class="chart"' not in look["html"], "a first look waits for no chart"
    moved = page.post("api/design", {"toml": SMALL, "job": first["job"], "set": {
        "drives.count": 2, "volume.raid": "raid1"}}).json()  # fmt: skip
    assert page.wait(first["job"], "cancelled")["state"] == "cancelled"
    tables = tomllib.loads(moved["toml"])
    assert tables["drives"][0]["count"] == 2
    assert tables["volume"][0]["raid"] == "raid1"
    done = page.wait(moved["job"])
    for part in ("What would help", "Latency against load", "with a probability of", "<svg"):
        assert part in done["html"]
    report = page.get(f"api/job/{moved['job']}/report")
    assert report.headers["content-disposition"].startswith("attachment")
    assert "one drive" in report.text


def test_a_design_that_cannot_be_says_why_and_nothing_is_sent_twice(page):
    body = {"toml": SMALL, "set": {"volume.raid": "raid6"}}
    found = page.post("api/design", body).json()
    assert "raid6" in found["toml"]
    assert "raid6" in found["error"]
    assert "job" not in found
    broken = page.post("api/design", {"toml": "name = "}).json()
    assert broken["error"].startswith("not TOML")
    job = page.post("api/design", {"toml": SMALL}).json()["job"]
    seen = page.wait(job)["version"]
    assert page.get(f"api/job/{job}?seen={seen}").json()["html"] is None


def test_every_control_makes_a_scenario_that_can_be():
    tables = controls.start()
    tried = {"drives.socket": "spread", "server.sockets": "2", "volume.degraded": "rebuilding",
             "workload.0.rate": "50k/s", "workload.0.slo": "2 ms"}  # fmt: skip
    known = controls.form("design")
    for control in sorted(known, key=lambda c: c.key != "server.sockets"):
        value = tried.get(control.key)
        if value is None:
            value = control.choices[-1][0] if control.choices else 4
        if control.key == "volume.raid":
            value = "raid6"
        if control.key == "workload.0.read":
            value = 0.5
        if control.key in ("server.platform", "drives.profile", "server.sockets.cpu"):
            value = parts(control.kind)[0]["name"]
        if control.key in ("workload.0.outstanding", "workload.0.threads", "volume.recordsize"):
            continue  # a fixed rate takes the place of the first; records are of ZFS
        tables = controls.put(tables, control.key, value, {})
        shown = controls.values(tables)[control.key]
        assert str(shown) == str(value), control.key
    scenario_from_dict(tables)
    closed = controls.put(tables, "workload.0.rate", "", {})
    assert closed["workload"][0]["threads"] > 0
    scenario_from_dict(closed)


def test_a_pool_has_records_where_others_have_chunks():
    tables = controls.put(controls.start(), "volume.raid", "raidz2", {})
    tables = controls.put(tables, "volume.recordsize", "16 KiB", {})
    shown = controls.values(tables)
    assert (shown["volume.engine"], shown["volume.chunk"]) == ("openzfs", None)
    assert shown["volume.recordsize"] == "16 KiB"
    assert scenario_from_dict(tables).volume[0].recordsize == 16384
    back = controls.put(tables, "volume.raid", "raid6", {})
    assert controls.values(back)["volume.recordsize"] is None
    assert back["volume"] == [{"raid": "raid6", "engine": "linux-md", "chunk": "128 KiB"}]
    scenario_from_dict(back)
    mirrors = controls.put(tables, "volume.raid", "zfs-mirror", {})
    assert mirrors["volume"][0]["recordsize"] == "16 KiB"


def test_controls_of_an_adapter_of_a_preset_and_of_none():
    there = controls.put(controls.start(), "server.sockets", "2", {})
    there["adapters"] = [{"name": "quad", "socket": 1}]
    there["drives"] = [{**there["drives"][0], "behind": "quad", "socket": 0}]
    assert controls.values(there)["drives.socket"] == "1"
    tables = controls.put(controls.start(), "workload", "scan", {})
    assert controls.values(tables)["workload"] == "scan"
    changed = controls.put(tables, "workload.0.threads", 3, {})
    assert controls.values(changed)["workload"] == ""
    with pytest.raises(InputError, match="not a control"):
        controls.put(controls.start(), "run.seed", 3, {})


def test_the_largest_load_and_a_goal(page):
    body = {"toml": SMALL, "p99": "5 us", "levels": []}
    done = page.wait(page.post("api/best", body).json()["job"])
    assert "nothing meets p99 within 5 µs" in done["html"]
    assert done["data"]["met"] is False
    wrong = page.post("api/best", {"toml": SMALL, "p99": "soon"}).json()["job"]
    assert "soon" in page.wait(wrong, "failed")["error"]
    goal = """
    [candidates]
    "drives.0.count" = [1, 2]
    [constraints]
    iops = "10k/s"
    [objective]
    minimize = "drives"
    """
    job = page.post("api/choose", {"toml": SMALL, "goal": goal}).json()["job"]
    done = page.wait(job)
    assert done["data"]["met"] is True
    assert "chosen" in done["html"]


def test_a_table_of_points_becomes_a_drive_of_the_design(page):
    points = re.findall(r'placeholder="(op,[^"]*)"', template("nvmesim.ui:drive.html"))[0]
    assert next(csv.DictReader(io.StringIO(points)))["op"] == "randread"
    name = "typed <b>drive</b>"
    job = page.post("api/calibrate", {"points": points, "name": name}).json()["job"]
    done = page.wait(job)
    assert "worst error on" in done["html"]
    assert "<b>drive</b>" not in done["html"]
    assert tomllib.loads(done["data"]["toml"])["kind"] == "drive"
    used = page.post("api/design", {"toml": SMALL, "set": {"drives.profile": name}}).json()
    assert "error" not in used
    assert tomllib.loads(used["toml"])["drives"][0]["profile"]["name"] == name
    assert used["controls"]["drives.profile"] == name
    report = page.get(f"api/job/{job}/report")
    assert "typed &lt;b&gt;drive&lt;/b&gt;" in report.text


def test_a_typed_datasheet_becomes_a_drive(page):
    sheet = {"capacity": "3.84 TB", "link": "PCIe 4.0 x4", "random_read": "1,000K IOPS",
             "random_write": "180K IOPS", "read_latency": "80 us"}  # fmt: skip
    job = page.post("api/calibrate", {"sheet": sheet, "name": "printed"}).json()["job"]
    profile = tomllib.loads(page.wait(job)["data"]["toml"])
    assert profile["capacity"]["value"] == "3840 GB"
    assert profile["capacity"]["basis"] == "datasheet"
    rows = {"points": "op,block_size,jobs,iodepth,iops\nrandread,4 KiB,1,1,11000\n"}
    both = page.post("api/calibrate", {"sheet": sheet, "name": "both", **rows}).json()["job"]
    fitted = tomllib.loads(page.wait(both)["data"]["toml"])
    assert fitted["commands"]["basis"] == "datasheet"
    assert [r["stated"] for r in fitted["residuals"]].count(False) == 1
    wrong = page.post("api/calibrate", {"sheet": sheet | {"read_latency": "soon"}}).json()["job"]
    said = page.wait(wrong, "failed")["error"]
    assert "read_latency is 'soon'" in said, said
    empty = page.post("api/calibrate", {"sheet": {"unknown": "1"}}).json()["error"]
    assert "capacity, link" in empty


def test_a_setting_is_applied_and_does_not_stop_another_level(page):
    body = {"toml": SMALL, "apply": {"workload.0.outstanding": 9}}
    tables = tomllib.loads(page.post("api/design", body).json()["toml"])
    assert tables["workload"][0]["outstanding"] == 9
    wrong = page.post("api/design", {"toml": SMALL, "apply": {"drives.0.profile": "/etc/x.toml"}})
    assert "opens no files" in wrong.json()["error"]
    body = {"toml": to_text(controls.start()), "apply": {"volume.*.group_thread_cnt": 8}}
    workers = page.post("api/design", body).json()["toml"]
    moved = page.post("api/design", {"toml": workers, "set": {"volume.raid": "raid10"}}).json()
    assert "error" not in moved
    assert "group_thread_cnt" not in moved["toml"]
    page.api.jobs.cancel_all()


@pytest.mark.parametrize("platform", ["", "dell-r760"])
def test_what_would_help_can_be_applied(page, platform):
    tables = controls.put(controls.start(), "server.platform", platform, {})
    found = simulate(scenario_from_dict(tables), requests=20_000).bottleneck.reliefs
    settings = [dict(relief.set) for relief in found if relief.set]
    each = 4 if platform else 8  # eight workers of an array, shared by the nodes of both sockets
    assert {"volume.*.group_thread_cnt": each} in settings
    for setting in settings:
        said = page.post("api/design", {"toml": to_text(tables), "apply": setting}).json()
        assert "error" not in said, setting
        page.api.jobs.cancel_all()


def test_what_does_not_fit_says_what_would(page):
    found = page.post("api/fits", {"toml": to_text(controls.start())}).json()["unfit"]
    assert "zfs-mirror, raidz1" in found["volume.engine"]["openzfs"]
    assert found["volume.raid"] == {}
    assert "which VROC is on Linux" in found["volume.engine"]["intel-vroc"]
    assert "a Linux stack" in found["server.stack"]["windows-2019"]
    on_small = controls.put(controls.start(), "server.platform", "dell-r4715", {})
    asked = {"toml": to_text(on_small), "set": {"drives.count": 24}}
    said = page.post("api/design", asked).json()["remarks"]["drives.count"]
    page.api.jobs.cancel_all()
    assert said.startswith("Dell PowerEdge R4715 (1U) has 8 bays for 24 drives: take 8, or a ser")
    assert re.search(r"with \d\d: Dell PowerEdge", said)


def test_dropped_files_and_pasted_dumps(page):
    before = set(page.api._folder.iterdir())
    answer = page.post("api/upload?name=../holiday.jpg", b"\xff\xd8\xff\xe0 no capture")
    assert set(page.api._folder.iterdir()) == before
    assert answer.status_code == 422
    said = answer.json()["error"]
    assert "holiday.jpg" in said
    assert "nvmesim-ui-" not in said, "the page is told of no folder of ours"
    gone = page.post("api/calibrate", {"files": ["99"]})
    assert "drop them again" in gone.json()["error"]
    nothing = page.post("api/calibrate", {"files": []})
    assert "drop captures" in nothing.json()["error"]
    found = page.post("api/describe", {"dumps": [LSCPU]}).json()
    assert "server" in tomllib.loads(found["toml"])
    assert found["missing"]
    bad = page.post("api/describe", {"dumps": ["hello"]}).json()["error"]
    assert "nvmesim-ui-" not in bad
    assert "paste-1.txt" in bad
