"""Work that the pages ask for, in a process of its own: predict, compare, choose, calibrate."""

import ctypes
import json
import os
import queue
import re
import sys
import tempfile
import threading
import tomllib
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from nvmesim import limits
from nvmesim.catalog.toml import fitted_toml
from nvmesim.errors import InputError, NvmesimError
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import compare, simulate
from nvmesim.scenario.load import to_text
from nvmesim.scenario.schema import Scenario
from nvmesim.show import page as html
from nvmesim.show.blocks import Line
from nvmesim.show.report import page
from nvmesim.show.words import one_line
from nvmesim.ui import answer as shown
from nvmesim.ui.controls import start
from nvmesim.ui.guard import NOWHERE, scenario_of, tables_of_text

COARSE_REQUESTS: Final = 4_000
MOST_WALL_S: Final = 60.0
MOST_DUMPS: Final = 40
MEMORY: Final = 2 << 30
"""Bytes of data that the process may hold; requests in flight may take half of them."""


class Cancelled(KeyboardInterrupt):
    """The page wants this no more; a simulation ends as if Ctrl-C had been pressed."""


class Job:
    """What work says while it runs."""

    def __init__(
        self, name: str, answers: IO[str], report: Path, cancelled: Container[str]
    ) -> None:  # fmt: skip
        self._name, self._answers, self._report, self._cancelled = name, answers, report, cancelled

    def publish(self, html: str, **data: Any) -> None:
        """Let the page show *html*, and know *data*."""
        self._say({"html": html, "data": data})

    def progress(self, what: str, share: float) -> None:
        """Say what is being done and how far it is; raises Cancelled once the page has stopped."""
        if self._name in self._cancelled:
            raise Cancelled
        self._say({"step": one_line(what), "share": share})

    def tell(self, what: str) -> None:
        """Say what is being done, of work that does not know how far it is."""
        self.progress(what, 0.0)

    def keep_report(self, page: str) -> None:
        """Keep the HTML file that the page offers for download."""
        self._report.write_text(page, encoding="utf-8")

    def run(self, work: Callable[..., None], asked: dict[str, Any]) -> None:
        """Do *work*; whatever goes wrong is one sentence for the page."""
        try:
            work(self, **asked)
            self._end("done")
        except KeyboardInterrupt:
            self._end("cancelled")
        except NvmesimError as error:
            folder = re.escape(f"{self._report.parent}{os.sep}")
            self._end("failed", re.sub(rf"{folder}(?:\d+{re.escape(os.sep)})?", "", str(error)))
        except MemoryError:
            self._end("failed", f"this needs more than {MEMORY >> 30} GiB, the most that the page "
                      "gives one design; nvmesim run --max-memory gives more")  # fmt: skip
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._end("failed", f"nvmesim failed at this ({type(error).__name__}); its terminal "
                      "says more")  # fmt: skip

    def _end(self, state: str, error: str = "") -> None:
        self._say({"state": state, "error": one_line(error), "size": _size()})

    def _say(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def _size() -> int:
    """Bytes of this process in memory once it has given back what it can; 0: not known."""
    with suppress(OSError, TypeError, AttributeError):  # only glibc keeps what was freed
        ctypes.CDLL(None).malloc_trim(0)
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _bound_memory() -> None:
    os.environ[limits.VARIABLE] = str(min(limits.memory(), MEMORY // 2))
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def first_look(scenario: Scenario, seed: int | None = None) -> Result:
    """Return a result of few requests: what a slider is followed with."""
    return simulate(scenario, requests=COARSE_REQUESTS, seed=seed, reliefs=False, over_time=False,
                    certainty=False)  # fmt: skip


def refine(job: Job, tables: Mapping[str, Any]) -> None:
    """Publish the figures of a first look, then the whole answer with its intervals."""
    scenario = scenario_of(tables)
    job.publish(shown.first(first_look(scenario)), stage="first")
    whole = simulate(
        scenario, curve=True, over_time=False, max_wall_s=MOST_WALL_S, progress=job.progress
    )
    job.tell("writing the report")
    total = whole.total
    job.publish(shown.answer(whole), stage="complete", iops=total.iops.to_json(),
                p99_s=total.latency.percentiles[99.0],
                verdict=whole.bottleneck.verdict)  # fmt: skip
    text = to_text(tables)
    job.keep_report(shown.with_designs(page(whole, scenario_text=text), [text]))


def designs_of(texts: Any) -> list[dict[str, Any]]:
    """Return the tables of the designs in TOML *texts*, two to four."""
    if not isinstance(texts, list) or not 2 <= len(texts) <= 4:
        raise InputError("compare 2 to 4 designs; add them on the Design page")
    tables = [tables_of_text(text) for text in texts]
    for found in tables:
        scenario_of(found)
    return tables


def compare_designs(
    job: Job, tables: Sequence[Mapping[str, Any]], prices: Sequence[float | None]
) -> None:
    """Publish the designs side by side, and each against the first with common random numbers."""
    designs = [scenario_of(t) for t in tables]
    states = [shown.states_of(t) for t in tables]
    steps = 2 * len(designs) - 1 + sum(map(len, states))
    done = 0

    def progress(what: str, share: float) -> None:
        job.progress(what, (done + share) / steps)

    def simulated(what: str, scenario: Scenario) -> Result:
        nonlocal done
        progress(what, 0)
        found = simulate(scenario, reliefs=False, over_time=False, max_wall_s=MOST_WALL_S,
                         progress=progress)  # fmt: skip
        done += 1
        return found

    quotes = []
    for n, design in enumerate(designs):
        name = design.name or str(n + 1)
        healthy = simulated(f"simulating {name}", design)
        other = {state: simulated(f"{name}, {state}", scenario_of(changed))
                 for state, changed in states[n].items()}  # fmt: skip
        quotes.append(shown.Quote(tables[n], prices[n], healthy, **other))
    gains = []
    for design in designs[1:]:
        gains.append(compare(designs[0], design, progress=progress))
        done += 1
    blocks = shown.page_blocks(quotes, gains)
    job.publish(html.html(blocks), stage="complete")
    title = " against ".join(shown.names_of(quotes))
    file = html.document(title, [Line(title, "title"), *blocks])
    job.keep_report(shown.on_one_page(shown.with_designs(file, [to_text(t) for t in tables])))


def choose_design(job: Job, goal: Mapping[str, Any]) -> None:
    """Publish what to buy for the tables of a goal."""
    from nvmesim.show.views.designs import choice_blocks
    from nvmesim.study.choose import choose
    from nvmesim.study.designs import goal_from_dict

    found = choose(goal_from_dict(goal, NOWHERE), workers=1, progress=job.progress)
    job.publish(html.html(choice_blocks(found, "")[1:]), met=found.chosen is not None)


def find_best(job: Job, tables: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Publish the largest load within a goal: healthy, degraded, rebuilding."""
    from nvmesim.show.views.designs import best_figures, best_fragment
    from nvmesim.study.best import best

    levels, limits = asked["levels"], {key: asked[key] for key in ("p99", "cpu", "iops")}
    found = best(scenario_of(tables), **limits, progress=job.progress,
                 over={"volume.raid": levels} if levels else None)  # fmt: skip
    job.publish(html.html([*best_fragment(found), best_figures(found)]), met=found.best is not None)


def calibrate(
    job: Job, name: str, files: Sequence[str] = (), captured_on: str = "", sheet: str = ""
) -> None:
    """Publish the drive fitted to *files*, the datasheet in *sheet*, or both, with its verdict."""
    from nvmesim.calibrate.datasheet import read_datasheet
    from nvmesim.calibrate.drive.fit import fit_datasheet, fit_drive
    from nvmesim.capture.registry import read_captures
    from nvmesim.show.views.fits import evidence, fit_page

    stated = read_datasheet(Path(sheet)) if sheet else None
    if stated is not None and not files:
        fit = fit_datasheet(stated, name=name, tell=job.tell)
    else:
        job.tell("reading")
        fit = fit_drive(
            read_captures(files), name=name, captured_on=captured_on or None, datasheet=stated,
            tell=job.tell,
        )  # fmt: skip
    job.keep_report(fit_page(fit))
    text = fitted_toml(fit.profile)
    usable = not fit.profile.missed
    job.publish(evidence(fit), name=name, toml=text, profile=tomllib.loads(text), usable=usable)


def check_server(job: Job, tables: Mapping[str, Any], files: Sequence[str]) -> None:
    """Publish what explains the difference between the rows in *files* and their prediction."""
    from nvmesim.show.views.measured import diagnosis_blocks, diagnosis_page
    from nvmesim.study.diagnosis.diagnose import diagnose

    found = diagnose(scenario_of(tables), files, progress=job.progress)
    job.keep_report(diagnosis_page(found))
    job.publish(html.html(diagnosis_blocks(found)), healthy=found.is_healthy)


def safe_name(name: str) -> str:
    """A file name of our own that keeps the ending of *name*, which may say the format.

    >>> safe_name("../../etc/pass wd.JSON"), safe_name("rr_clat.1.log.gz"), safe_name("..")
    ('pass_wd.JSON', 'rr_clat.1.log.gz', 'capture')
    """
    last = re.split(r"[/\\]", name)[-1]
    return re.sub(r"[^A-Za-z0-9._-]", "_", last)[-80:].lstrip(".") or "capture"


def warm(_: Job) -> None:
    """Load the engine and the charts' code."""
    import altair  # noqa: F401 - a second, which the first answer need not wait for

    first_look(scenario_of(start()))


WORK: Final[Mapping[str, Callable[..., None]]] = {
    "refine": refine, "compare": compare_designs, "choose": choose_design, "best": find_best,
    "calibrate": calibrate, "check": check_server, "warm": warm,
}  # fmt: skip
"""Work by the name that `Jobs.start` takes."""


def describe_dumps(texts: Any, folder: Path) -> dict[str, Any]:
    """Return the scenario that pasted dumps describe."""
    from nvmesim.describe import description

    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_DUMPS:
        raise InputError(f"paste 1 to {MOST_DUMPS} dumps, such as what lscpu printed")
    if not all(isinstance(t, str) and t.strip() for t in texts):
        raise InputError("a dump is empty; paste what the command printed")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        files = []
        for n, text in enumerate(texts, 1):
            files.append(Path(place) / f"paste-{n}.txt")
            files[-1].write_text(text, encoding="utf-8")
        try:
            found = description(files)
        except InputError as error:
            raise type(error)(str(error).replace(f"{place}/", "")) from None
    return found.to_json()


def serve() -> None:
    """Do the jobs that are asked; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _bound_memory()
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    cancelled: set[str] = set()

    def listen() -> None:
        try:
            with open(0, encoding="utf-8", closefd=False) as asked:
                for line in asked:
                    message = json.loads(line)
                    if message["do"] == "cancel":
                        cancelled.add(message["job"])
                    else:
                        waiting.put(message)
        finally:  # an app that was killed may leave half a line
            os._exit(0)  # the app is gone; compiled code would not hear of it

    threading.Thread(target=listen, daemon=True).start()
    while True:
        message = waiting.get()
        job = Job(message["job"], answers, Path(message["report"]), cancelled)
        job.run(WORK[message["do"]], message["asked"])


if __name__ == "__main__":
    serve()
