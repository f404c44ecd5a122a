from dataclasses import replace

import pytest

from nvmesim.errors import FitError, InputError
from nvmesim.predict.uncertainty.standing import CPU_BOUND, Standing
from nvmesim.study.validate.answer import answer
from nvmesim.study.validate.predict import Value
from nvmesim.study.validate.published import Question, find_sets, new_set, read_set
from nvmesim.study.validate.score import is_other_stack
from tests.validate.conftest import PUBLISHED

SETS = [path.name for path in find_sets()]


def keys(name, role):
    return {(r.config, r.metric) for r in read_set(PUBLISHED / name).rows if r.role == role}


def test_all_sets_can_be_read():
    assert len(SETS) >= 25
    for name in SETS:
        published = read_set(PUBLISHED / name)
        assert published.name == name
        assert published.file.source
        assert published.file.hardware


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
def test_free_parameters_are_no_more_than_inputs(name):
    published = read_set(PUBLISHED / name)
    assert len(published.file.fit) <= max(len(published.inputs), 0)


@pytest.mark.parametrize("name", SETS)
def test_a_question_holds_no_target(name):
    published = read_set(PUBLISHED / name)
    question = Question.of(published)
    assert all(row.role == "input" for row in question.inputs)
    assert set(question.asked) == {row.key for row in published.rows}


@pytest.mark.parametrize("kind", ["input", "target"])
def test_changing_a_target_changes_no_prediction(tmp_path, kind):
    folder = tmp_path / "own"
    new_set(folder)
    before = answer(Question.of(read_set(folder)))
    rows = folder / "rows.csv"
    old = {"input": "12.0", "target": "2500000"}[kind]
    new = {"input": "14.0", "target": "1900000"}[kind]
    rows.write_text(rows.read_text().replace(old, new))
    after = answer(Question.of(read_set(folder)))
    same = (after.values, after.fitted) == (before.values, before.fitted)
    assert same == (kind == "target")


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


def test_unknown_sets_and_folders(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="did you mean 'team-jbod'"):
        find_sets(("team-jbot",))
    with pytest.raises(InputError, match=r"no set\.toml in it"):
        find_sets((str(tmp_path),))
    with pytest.raises(InputError, match="new or an empty folder"):
        new_set(PUBLISHED)


def test_a_row_limited_by_a_stack_of_no_input_is_not_counted():
    published = read_set(PUBLISHED / "io_uring-polled")
    rows = {row.config: row for row in published.rows}
    cpu, drive = (
        replace(Value.plain(1.0), standing=Standing(c)) for c in (CPU_BOUND, "drives alone")
    )
    assert is_other_stack(published, rows["7950X, interrupts"], cpu)
    assert not is_other_stack(published, rows["7950X, interrupts"], drive)
    assert not is_other_stack(published, rows["Optane, QD16"], cpu)


def test_numbers_that_wait_for_a_fit_are_not_the_catalogs():
    """A set's own drive, or a number that nobody states, is no prediction from the catalog."""
    assert read_set(PUBLISHED / "980pro-jbod").from_catalog.says("8 drives, 10x128")
    bitmaps = read_set(PUBLISHED / "980pro-raid5-bitmap").from_catalog
    assert not bitmaps.says("internal, 64M")
    assert bitmaps.says("no bitmap")
    own = read_set(PUBLISHED / "p5800x-jbod")
    assert "drives.0.profile=intel-p5800x" in own.from_catalog.set
    bare = replace(own, file=own.file.model_copy(update={"catalog": None}))
    assert not bare.from_catalog.says("1 drives JBOD, 1 thread")
