"""Sweeps and choices where something is odd: other versions, dead workers, unsure figures."""

import copy
import json
from concurrent.futures import Future
from types import SimpleNamespace

import polars as pl
import pytest

from nvmesim.errors import InfrastructureError, InputError
from nvmesim.study.choose import COLUMNS, Search, choose
from nvmesim.study.designs import goal_from_dict
from nvmesim.study.sweep import workers as cluster
from nvmesim.study.sweep.point import PointAnswer, PointCache, content_of, parameter_column
from tests.study.test_choose import GOAL


class Client:
    """Answers each job with its number; the job called *dead* dies with its worker."""

    status = "running"
    scheduler = SimpleNamespace(identity=None)

    def __init__(
        self, workers: int = 2, version: str = "", dead: int = -1, futures: str = "finished",
        left: int = 1,
    ) -> None:  # fmt: skip
        self.version, self.dead, self.futures, self.left = version, dead, futures, left
        self.workers = [f"tcp://{n}" for n in range(workers)]
        self.sent = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for_workers(self, *_: object, **__: object) -> None:
        if not self.workers:
            raise TimeoutError

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 1)

    def run(self, function, on_error):  # type: ignore[no-untyped-def]
        other = ModuleNotFoundError(name="nvmesim") if self.version == "none" else "older"
        found = (self.version, "0" * 16) if self.version[:1].isdigit() else other
        return dict.fromkeys(self.workers, found if self.version else function())

    def sync(self, _: object) -> dict[str, dict[str, int]]:
        if self.left < 0:
            raise OSError("no connection")
        return {"workers": self.nthreads() if self.left else {}}

    def submit(self, _, text: str, **__: object) -> Future:  # type: ignore[no-untyped-def]
        self.sent += 1
        number, future = json.loads(text), Future()
        future.status = self.futures  # as those of Dask have
        if number == self.dead:
            future.set_exception(RuntimeError("lost\nworker"))
        elif self.futures != "pending":
            future.set_result(PointAnswer(number, {"iops": float(number)}).to_text())
        return future


def jobs(n: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(number=k, to_text=lambda k=k: json.dumps(k)) for k in range(n)]


@pytest.fixture
def connected(monkeypatch):
    def connect(**how: object) -> Client:
        client = Client(**how)  # type: ignore[arg-type]
        cluster.about()  # made once, by what is replaced below
        module = SimpleNamespace(Client=lambda *_, **__: client)
        monkeypatch.setattr(cluster.importlib, "import_module", lambda _: module)
        return client

    return connect


def test_every_job_is_answered_and_one_given_up_is_an_error_in_its_row(connected) -> None:
    client = connected(workers=20)
    answers, most = [], 0
    for answer in cluster.answers_of_cluster("a", jobs(300)):
        most = max(most, client.sent - len(answers))
        answers.append(answer.number)
    assert sorted(answers) == list(range(300))
    assert most == 80  # four a thread
    connected(dead=3)
    found = {a.number: a for a in cluster.answers_of_cluster("a", jobs(70))}
    assert found[3].died
    assert found[3].row == {"error": "the cluster gave this point up: lost worker"}
    assert not any(a.died for n, a in found.items() if n != 3)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ({"workers": 0}, InfrastructureError, "has no workers"),
        ({"version": "0.9"}, InputError, "tcp://0 has nvmesim 0.9 with catalog 00000000; here is"),
        ({"version": "none"}, InputError, "tcp://0 has no nvmesim; here is nvmesim"),
        ({"version": "x"}, InputError, "tcp://0 has another version of nvmesim; here is"),
        ({"futures": "cancelled"}, InfrastructureError, "lost its work; the finished points are"),
        ({"futures": "pending", "left": 0}, InfrastructureError, "has no workers any more"),
        ({"futures": "pending", "left": -1}, InfrastructureError, "does not answer any more"),
    ],
)
def test_clusters_that_cannot_be_used(connected, monkeypatch, how, kind, words) -> None:
    monkeypatch.setattr(cluster, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(cluster, "GONE_S", 0.05)
    connected(**how)
    with pytest.raises(kind, match=words):
        list(cluster.answers_of_cluster("a", jobs(1)))


def test_a_cluster_needs_its_package(monkeypatch) -> None:
    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(cluster.importlib, "import_module", missing)
    with pytest.raises(InputError, match="pip install 'distributed>="):
        list(cluster.answers_of_cluster("a", jobs(1)))


def test_points_and_files_are_believed_by_what_is_in_them_and_who_could_write(tmp_path) -> None:
    PointCache(tmp_path).put("ab12", {"iops": 1.0})
    assert PointCache(tmp_path).get("ab12") == {"iops": 1.0}
    point = next((tmp_path / "points").rglob("*.json"))
    point.parent.chmod(0o777)
    assert PointCache(tmp_path).get("ab12") is None
    point.parent.chmod(0o700)
    point.chmod(0o666)
    assert PointCache(tmp_path).get("ab12") is None
    file = tmp_path / "trace.csv"
    assert content_of([file]) == content_of([str(file)]), "no file counts by its name"
    file.write_text("a")
    first = content_of([file])
    file.write_text("bb")
    assert content_of([file]) not in (first, content_of([str(file)]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], pl.Int64), ([1, 2.5], pl.Float64), ([True, False], pl.Boolean),
        (["a", 1], pl.String), ([{"die": "60 us"}], pl.String),
    ],
)  # fmt: skip
def test_columns_of_what_was_varied(values: list, kind: type) -> None:
    assert parameter_column("x", values).dtype == kind


def goal(**constraints: object):  # type: ignore[no-untyped-def]
    tables = copy.deepcopy(GOAL)
    tables["constraints"] = constraints
    tables["candidates"] = {"drives.0.count": [2]}
    return goal_from_dict(tables)


ROW = {
    "iops": 1.2e6, "iops_low": 1.1e6, "lat_p99_us": 90.0, "lat_p99_high_us": 95.0,
    "verdict": "drive", "error": None, "bound_iops": 2e6, "backlog_per_s": 0.0, "station": "drive0",
    "fullest": "drive0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("constraints", "row", "failed", "words"),
    [
        ({"iops": "1M/s"}, {}, "", ""),
        ({"iops": "1150k/s"}, {}, "iops", "iops holds, but not for sure"),
        ({"iops": "1300k/s"}, {}, "iops", "short of"),
        ({"p99": "100 us"}, {}, "", ""),
        ({"p99": "92 us"}, {}, "p99", "p99 holds, but not for sure"),
        ({"p99": "100 us"}, {"lat_p99_us": None}, "p99", "p99 is not known"),
        ({"iops": "1M/s"}, {"error": "no such thing"}, "scenario", "no such thing"),
        ({"p99": "1 s"}, {"verdict": "unstable"}, "iops", ""),
    ],
)
def test_each_answer_is_judged_by_its_unsure_end(constraints, row, failed, words) -> None:
    search = Search(goal(**constraints), 1, None)
    (candidate,) = search.all
    names = {column for columns in COLUMNS.values() for column in columns}
    full = {**dict.fromkeys(names), **ROW, **row}
    full["iops_simulation"], full["lat_p99_simulation"] = 1 - 1.1 / 1.2, 95 / 90 - 1
    search.judge(candidate, full)
    assert candidate.failed == failed
    assert words in (candidate.reason or "")


def test_progress_of_a_choice_reaches_its_end() -> None:
    told: list[tuple[str, float]] = []
    tables = copy.deepcopy(GOAL)
    tables["candidates"] = {"drives.0.count": [4]}
    choice = choose(tables, workers=1, progress=lambda *step: told.append(step))
    assert choice.chosen is not None
    assert [text.split(":")[0] for text, _ in told] == ["bounds", "simulated"]
    assert [share for _, share in told] == [1.0, 1.0]
