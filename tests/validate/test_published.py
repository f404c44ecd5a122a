"""Published sets: roles of rows, scores, and the pages that are made of them."""

import json
import re
from dataclasses import replace

import pytest

from nvmesim.catalog import load as catalog
from nvmesim.catalog.toml import to_toml
from nvmesim.cli.main import run_command
from nvmesim.errors import FitError, InputError
from nvmesim.predict.uncertainty.standing import CPU_BOUND, Standing
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.show.views.scoreboard import page, report, scoreboard
from nvmesim.study.validate.answer import answer
from nvmesim.study.validate.predict import Value
from nvmesim.study.validate.published import Question, find_sets, new_set, read_set
from nvmesim.study.validate.score import is_other_stack, score, summary
from tests.servers import bare
from tests.validate.conftest import PUBLISHED

SETS = [path.name for path in find_sets()]


def keys(name, role):
    return {(r.config, r.metric) for r in read_set(PUBLISHED / name).rows if r.role == role}


def test_all_sets_can_be_read_and_unknown_ones_are_named(tmp_path, monkeypatch):
    assert len(SETS) >= 25
    for name in SETS:
        published = read_set(PUBLISHED / name)
        assert published.name == name
        assert published.file.source
        assert published.file.hardware
    with pytest.raises(InputError, match="did you mean 'team-jbod'"):
        find_sets(("team-jbot",))
    with pytest.raises(InputError, match=r"no set\.toml in it"):
        find_sets((str(tmp_path),))
    with pytest.raises(InputError, match="new or an empty folder"):
        new_set(PUBLISHED)


def test_roles_are_the_fixed_ones():
    assert keys("team-jbod", "input") == {("6130, 1 drive", "iops"), ("6130, 1 drive", "cpu_pct")}
    one_cpu = {f"{os}, one CPU, {op}" for os in (2016, 2019) for op in ("read", "write")}
    assert {c for c, _ in keys("ruvds-upi", "input")} == {*one_cpu, "2016, two CPUs, read"}
    whole = {c for c, m in keys("980pro-depth", "input") if m == "clat_p99_us"}
    assert whole == {"1x1", "2x32", "4x64"}
    assert {c for c, _ in keys("980pro-depth", "input")} - whole == {"1x32", "1x128"}
    depth = {(c.removeprefix("1 drive, "), m) for c, m in keys("980pro-jbod", "input")}
    assert depth <= keys("980pro-depth", "input")
    assert all("1 target" in c for c, _ in keys("storage-spaces-mirror", "input"))
    assert not keys("ruvds-hyperv", "target")
    assert all("write" in c for c, _ in keys("storage-spaces-parity", "shown"))
    assert not keys("interfaces", "input")


@pytest.mark.parametrize("name", SETS)
def test_free_parameters_are_no_more_than_inputs_and_questions_hold_no_target(name):
    published = read_set(PUBLISHED / name)
    assert len(published.file.fit) <= max(len(published.inputs), 0)
    question = Question.of(published)
    assert all(row.role == "input" for row in question.rows)
    assert set(question.asked) == {row.key for row in published.rows}


def test_changing_a_target_changes_no_prediction_and_an_input_does(tmp_path):
    folder = tmp_path / "own"
    new_set(folder)
    rows = folder / "rows.csv"
    found = []
    for old, new in (("", ""), ("2500000", "1900000"), ("12.0", "14.0")):  # a target, an input
        rows.write_text(rows.read_text().replace(old, new))
        answered = answer(Question.of(read_set(folder)))
        found.append((answered.values, answered.fitted))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("rows", ",role,", ",part,", "no column role"),
        ("rows", ",role,", ",role,colour,", "column 'colour' is unknown"),
        ("rows", "12.0,,,input", "12.0,,,", "role is missing; one of input, target, shown"),
        ("rows", "640000", "nan", "measured is 'nan'; a finite number"),
        ("rows", ",target,", ",input,", "no row is a target or shown"),
        ("rows", "12.0,,,input", "12.0,,,both", "role is 'both'"),
        ("rows", "one drive,iops,640000", "one drive,cpu_pct,12.5", "is an input and a target"),
        ("rows", "640000", "640k", "units are not mixed: iops is a plain number in /s"),
        ("rows", "12.0", "120", "cpu_pct is in %, 100 at most"),
        ("rows", "45,55", "55,45", "low is 55, above high, 45"),
        ("rows", "45,55", ",55", "neither measured nor low and high"),
        ("rows", "iops,640000", "ipos,640000", "metric 'ipos' is unknown; did you mean 'iops'"),
        ("rows", "four drives,iops", "for drives,iops", "no config 'for drives'; did you mean"),
        ("rows", "target,,\nfour drives,iops", "target,one drive,\nfour drives,iops",
         "compares nothing"),
        ("set", "budget = { iops = 0.10, cpu_pct = 5 }", "budget = {}", "budget is empty"),
        ("set", "budget = { iops = 0.10,", "budget = {", "budget has nothing for iops"),
        ("set", 'metric = "cpu_pct"', 'metric = "iops"', "is a target; only an input"),
        ("set", "={x}", "=1000", "no {x} in set"),
        ("set", 'grade = "table"', 'grade = "hearsay"', "grade"),
        ("set", "high = 40000", "high = 600", "is not reached between 500 and 600 cycles"),
    ],
)  # fmt: skip
def test_bad_sets_are_refused_by_name(tmp_path, file, old, new, says):
    folder = tmp_path / "own"
    new_set(folder)
    path = next(folder.glob(f"{file}.*"))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises((InputError, FitError), match=says) as found:
        answer(Question.of(read_set(folder)))
    assert "\n" not in str(found.value)


def test_rows_of_stacks_that_are_no_input_and_numbers_that_wait():
    published = read_set(PUBLISHED / "io_uring-polled")
    rows = {row.config: row for row in published.rows}
    cpu, drive = (
        replace(Value.plain(1.0), standing=Standing(c)) for c in (CPU_BOUND, "drives alone")
    )
    assert is_other_stack(published, rows["7950X, interrupts"], cpu)
    assert not is_other_stack(published, rows["7950X, interrupts"], drive)
    assert not is_other_stack(published, rows["Optane, QD16"], cpu)
    # A set's own drive, or a number that nobody states, is no prediction from the catalog.
    assert read_set(PUBLISHED / "980pro-jbod").from_catalog.says("8 drives, 10x128")
    bitmaps = read_set(PUBLISHED / "980pro-raid5-bitmap").from_catalog
    assert not bitmaps.says("internal, 64M")
    assert bitmaps.says("no bitmap")
    own = read_set(PUBLISHED / "p5800x-jbod")
    assert "drives.0.profile=intel-p5800x" in own.from_catalog.set
    bare = replace(own, file=own.file.model_copy(update={"catalog": None}))
    assert not bare.from_catalog.says("1 drives JBOD, 1 thread")


QUICK = ("interfaces", "team-trimode")
ONE_WORKER = pytest.mark.xdist_group("quick sets")


def scored(name):
    published = read_set(PUBLISHED / name)
    return score(published, answer(Question.of(published)))


@pytest.fixture(scope="module")
def quick():
    return [scored(name) for name in QUICK]


@pytest.mark.parametrize("which", range(len(QUICK)))
@ONE_WORKER
def test_reports_are_current(quick, which):
    """Rows, measured and predicted; ends of intervals rest on all sets, and need a whole run."""
    written = (PUBLISHED / QUICK[which] / "report.md").read_text("utf-8")
    rows = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|(]+)", re.MULTILINE)
    assert rows.findall(report(quick[which])) == rows.findall(written)
    assert rows.findall(written)


@ONE_WORKER
def test_ceilings_lie_below_the_published_by_what_the_protocol_takes(quick):
    errors = [line.error for line in quick[0].targets]
    assert all(-0.21 < e < -0.05 for e in errors)


@ONE_WORKER
def test_scoreboard_and_page_name_every_target_and_the_summary_counts_them(quick):
    board, html = scoreboard(quick), page(quick)
    for one in quick:
        for line in one.targets:
            assert line.row.config in board
            assert line.row.config in html
    assert "What is not explained" in html
    assert "https://" not in html.split("<script")[0]
    found = summary(quick)
    assert found.targets == sum(len(s.targets) for s in quick)
    assert found.calibrated.rows == 0 or 0 <= found.calibrated.covered <= 1


def test_the_command_line_and_a_missed_budget(capsys, tmp_path, copied):
    html = tmp_path / "v.html"
    assert run_command(["validate", "interfaces", "--json", "--report", str(html)]) == 0
    rows = json.loads(capsys.readouterr().out)["sets"]
    keys = "set role config metric measured predicted error within_budget information limit crps"
    assert set(keys.split()) <= rows[0].keys()
    assert {"value", "low", "high"} == rows[0]["predicted"].keys()
    ends = [(row["predicted"]["low"], row["predicted"]["high"]) for row in rows]
    assert all(low is None or low < high for low, high in ends)  # no interval of zero width
    assert html.stat().st_size > 10_000
    folder = copied("interfaces", set={"iops = 0.16": "iops = 0.01"})
    assert run_command(["validate", str(folder)]) == 1
    assert "0 of 3 targets" in capsys.readouterr().out


def two_sockets(**workload):
    return scenario_from_dict({
        "server": {
            "stack": "windows-2016",
            "sockets": [{"cpu": "xeon-gold-6250"}, {"cpu": "xeon-gold-6250"}],
            "interconnect": {"links": workload.pop("links", 2)},
        },
        "drives": [{"profile": "intel-p4610-1.6tb", "count": 2, "state": "fresh"}],
        "workload": {"threads": 32, "outstanding": 32, **workload},
    })  # fmt: skip


def iops(**workload):
    return bare(two_sockets(**workload), requests=60_000)


def test_files_and_links_between_sockets():
    spread = iops(filesystem="ntfs")
    assert spread.total.iops.value == pytest.approx(590e3, rel=0.01)
    assert "handed between sockets" in spread.bottleneck.sentence
    writes = iops(filesystem="ntfs", read=0.0)
    assert writes.total.iops.value == pytest.approx(590e3, rel=0.01)
    assert iops(filesystem="ntfs", socket=0).total.iops.value > 1e6
    assert iops().total.iops.value > 1e6  # raw drives have no such section
    two, three = (iops(filesystem="ntfs", links=n).total.iops for n in (2, 3))
    assert three.value == pytest.approx(two.value, rel=0.002)
    one = {"filesystem": "ntfs", "socket": 0}
    reads, writes = iops(**one), iops(read=0.0, **one)
    more = writes.cpu.cycles_per_io - reads.cpu.cycles_per_io
    assert more == pytest.approx(10_500, rel=0.05)


def alike(new, old):
    """The same words, and numbers within 3 % (last digits may differ)."""
    number = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    assert number.sub("#", new) == number.sub("#", old)
    ours, theirs = ([float(n) for n in number.findall(text)] for text in (new, old))
    assert ours == pytest.approx(theirs, rel=0.03, abs=0.3)


@pytest.mark.slow
def test_reports_and_scoreboard_are_current():
    scores = [scored(path.name) for path in find_sets()]
    for one in scores:
        alike(report(one), (one.published.folder / "report.md").read_text("utf-8"))
    alike(scoreboard(scores), (PUBLISHED / "SCOREBOARD.md").read_text("utf-8"))


def test_the_scoreboard_is_that_of_the_reports_wherever_one_stands(tmp_path, monkeypatch):
    """Every predicted cell of the scoreboard stands in the report of its set, and the other way."""
    board = (PUBLISHED / "SCOREBOARD.md").read_text("utf-8")
    for path in find_sets():
        title = read_set(path).file.title
        section = board.split(f"## {title}\n")[1].split("\n## ")[0]
        cells = {line.split(" | ")[2] for line in section.splitlines() if line.count(" | ") == 3}
        assert cells
        text = (path / "report.md").read_text("utf-8")
        assert all(cell in text for cell in cells - {"predicted (95 %)"})
    monkeypatch.chdir(tmp_path)
    assert "interfaces" in [folder.name for folder in find_sets()]


def test_a_set_of_a_server_and_its_rows(tmp_path, capfd):
    """What `diagnose` compares becomes a set, with the scenario's own profile found from there."""
    drive = to_toml(catalog.get("drive", "samsung-980pro-1tb"))
    (tmp_path / "own.toml").write_text(drive)
    server = tmp_path / "server.toml"
    server.write_text(
        'name = "four"\n[server]\nstack = "linux-io_uring"\n[[server.sockets]]\n'
        'cpu = "epyc-7313"\n[[drives]]\nprofile = "own.toml"\ncount = 4\n'
        "[[workload]]\nthreads = 1\noutstanding = 1\n"
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("op,block_size,jobs,iodepth,iops\nrandread,4 KiB,1,1,14400\n")
    folder = tmp_path / "mine"
    assert run_command(["validate", "new", str(folder), str(server), str(rows)]) == 0
    assert run_command(["validate", str(folder), "--json"]) == 0
    (line,) = json.loads(capfd.readouterr().out)["sets"]
    assert (line["role"], line["metric"], line["measured"]) == ("target", "iops", 14400)
    assert line["within_budget"]
