"""The app's JSON interface; every refusal is one sentence."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nvmesim.calibrate.datasheet import KEYS
from nvmesim.errors import InputError, NvmesimError
from nvmesim.scenario.load import to_text, with_values
from nvmesim.show.charts import bundle
from nvmesim.show.words import one_line
from nvmesim.ui import controls, goal_form, work
from nvmesim.ui.guard import check, scenario_of, tables_of_text, text_of
from nvmesim.ui.jobs import Jobs, PageJob, Scratch

MOST_FILES: Final = 60
MOST_BYTES: Final = 256 << 20
"""Of all captures that are held at once."""
MOST_OWN: Final = 30
"""Calibrated drives that are kept by name."""


class Api:
    """The state of one run of the app: jobs, dropped captures, calibrated drives."""

    def __init__(self, opened: Sequence[str] = ()) -> None:
        self.opened = list(opened)
        """TOML of the designs in the file that the app was started with."""
        self.own: dict[str, dict[str, Any]] = {}
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self.jobs = Jobs(self._folder)
        self._files: dict[str, tuple[Path, int]] = {}
        self._number = 0

    def warm(self) -> None:
        """Load the engine and the charts' code."""
        self.jobs.warm()
        bundle()

    def close(self) -> None:
        """Stop all work and delete what was dropped."""
        self.jobs.close()
        self._scratch.remove()

    def design(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A design with controls moved: its TOML, the controls, and the job that answers."""
        self.jobs.cancel(asked.get("job"))
        text = asked.get("toml") or ""
        tables = tables_of_text(text) if text else controls.start()
        change, settings = asked.get("set"), asked.get("apply")
        if isinstance(change, dict):
            for key, value in change.items():
                if value not in self.own:  # those are tables of ours, under any name
                    check({key.rpartition(".")[2]: value})
                tables = controls.put(tables, key, value, self.own)
        if isinstance(settings, dict):
            tables = with_values(tables, settings)
            check(tables)
        if change or settings or not text:
            text = to_text(tables)
        out: dict[str, Any] = {
            "toml": text, "controls": controls.values(tables), "own": list(self.own),
            "remarks": controls.remarks(tables),
        }  # fmt: skip
        try:
            scenario_of(tables)
        except NvmesimError as error:
            return {**out, "error": one_line(str(error))}
        return out | self._started("refine", {"tables": tables})

    def fits(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Which choices do not fit the design, and what would make them fit."""
        return {"unfit": controls.unfit(tables_of_text(asked.get("toml")))}

    def compare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start the comparison of two to four designs."""
        tables = work.designs_of(asked.get("designs"))
        typed = asked.get("prices")
        listed = typed if isinstance(typed, list) else []
        prices = [_price(text) for text in listed[: len(tables)]]
        prices += [None] * (len(tables) - len(prices))
        return self._started("compare", {"tables": tables, "prices": prices})

    def goal(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A goal with one field moved: its TOML, the fields, the prices that it needs."""
        text, design = asked.get("goal"), tables_of_text(asked.get("toml"))
        goal = tables_of_text(text)
        change = asked.get("set")
        if isinstance(change, dict) and change:
            for key, value in change.items():
                goal = goal_form.put(goal, key, value)
            check(goal)
            text = to_text(goal)
        return {"goal": text, "controls": goal_form.values(goal),
                "parts": goal_form.parts(goal, design),
                "error": one_line(goal_form.problem(goal, design))}  # fmt: skip

    def choose(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start the choice for a goal, given as TOML around the design's own tables."""
        goal = tables_of_text(asked.get("goal"))
        goal["scenario"] = tables_of_text(asked.get("toml"))
        return self._started("choose", {"goal": goal})

    def best(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start the search for the largest load within a goal."""
        tables = tables_of_text(asked.get("toml"))
        wanted = {key: asked.get(key) or None for key in ("p99", "cpu", "iops", "levels")}
        return self._started("best", {"tables": tables, "asked": wanted})

    def describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A scenario from pasted dumps."""
        return work.describe_dumps(asked.get("dumps"), self._folder)

    def calibrate(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start a fit to dropped captures or typed points, to a datasheet, or to both."""
        name = text_of(asked.get("name") or "my drive", "name", 80)
        host = text_of(asked.get("captured_on") or "", "captured on", 120)
        sheet = asked.get("sheet")
        wanted: dict[str, Any] = {"name": name}
        if isinstance(sheet, dict):
            known = {key: text_of(sheet[key], key, 80) for key in KEYS if sheet.get(key)}
            if not known:
                raise InputError("type what the datasheet says: capacity, link and one figure")
            wanted["sheet"] = str(self._keep("datasheet.toml", to_text(known).encode())[1])
        if not isinstance(sheet, dict) or asked.get("files") or asked.get("points"):
            wanted["captured_on"] = host
            wanted["files"] = [str(file) for file in self._captures(asked)]

        def keep(job: PageJob) -> None:
            while len(self.own) >= MOST_OWN:
                del self.own[next(iter(self.own))]
            self.own[name] = job.data.pop("profile")

        return self._started("calibrate", wanted, keep)

    def check(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start the search for why a server does not do what is predicted."""
        tables = tables_of_text(asked.get("toml"))
        scenario_of(tables)
        files = [str(file) for file in self._captures(asked)]
        return self._started("check", {"tables": tables, "files": files})

    def _captures(self, asked: dict[str, Any]) -> list[Path]:
        typed = asked.get("points")
        if isinstance(typed, str) and typed.strip():
            return [self._keep("points.csv", text_of(typed, "points").encode())[1]]
        wanted = asked.get("files")
        if not isinstance(wanted, list) or not wanted:
            raise InputError("drop captures here first, or type a table of points")
        found = [self._files[f][0] for f in wanted if isinstance(f, str) and f in self._files]
        if len(found) < len(wanted):
            raise InputError("these captures are no longer here; drop them again")
        return found

    def upload(self, name: str, data: bytes) -> dict[str, Any]:
        """Keep one dropped capture; say what it is, or why it is none."""
        from nvmesim.capture.registry import read_capture

        held = sum(size for _, size in self._files.values())
        if len(self._files) >= MOST_FILES or held + len(data) > MOST_BYTES:
            raise InputError("too much was dropped; calibrate, then open this page again")
        key, path = self._keep(name, data)
        try:
            capture = read_capture(path)
        except NvmesimError as error:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise InputError(str(error).replace(str(path), name[-80:])) from None
        self._files[key] = (path, len(data))
        return {"id": key, "name": one_line(name)[-80:], "format": capture.format}

    def _keep(self, name: str, data: bytes) -> tuple[str, Path]:
        self._number += 1
        path = self._folder / str(self._number) / work.safe_name(name)
        path.parent.mkdir()
        path.write_bytes(data)
        return str(self._number), path

    def _started(
        self, what: str, asked: dict[str, Any], done: Callable[[PageJob], None] | None = None
    ) -> dict[str, Any]:
        return {"job": self.jobs.start(what, asked, done).id}


def _price(text: Any) -> float | None:
    """The number that was typed as a price; None if none was."""
    typed = text_of(text, "price", 40).replace(",", "").strip()
    if not typed:
        return None
    try:
        price = float(typed)
    except ValueError:
        price = 0.0
    if not 0 < price < 1e12:
        raise InputError(f"price: {typed!r} is not an amount, such as 24500")
    return price


def posted(action: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return an endpoint that gives *action* the JSON object that was sent."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            return refused("a JSON object is needed")
        if not isinstance(asked, dict):
            return refused("a JSON object is needed")
        return await _answered(lambda: action(asked))

    return endpoint


def uploaded(api: Api) -> Any:
    """Return the endpoint that takes one capture as the body of a request."""

    async def endpoint(request: Request) -> Response:
        name = request.query_params.get("name", "capture")
        data = await request.body()
        return await _answered(lambda: api.upload(name, data))

    return endpoint


async def _answered(action: Callable[[], dict[str, Any]]) -> Response:
    try:
        return JSONResponse(await run_in_threadpool(action))
    except NvmesimError as error:
        return refused(str(error))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        return refused(f"this request cannot be understood ({type(error).__name__})")


def refused(text: str) -> Response:
    """One sentence for the page."""
    return JSONResponse({"error": one_line(text)[:1500]}, 422)
