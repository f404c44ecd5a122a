"""The pages of `nvmesim ui` and where each request goes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from itertools import groupby
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route

from nvmesim.calibrate.datasheet import KEYS
from nvmesim.errors import NvmesimError
from nvmesim.raid.levels import MD_LEVELS
from nvmesim.scenario.load import to_text
from nvmesim.show.charts import bundle
from nvmesim.show.page import asset
from nvmesim.ui.answer import pdf_of
from nvmesim.ui.api import Api, posted, uploaded
from nvmesim.ui.controls import form, parts, start, values
from nvmesim.ui.goal_form import START as GOAL
from nvmesim.ui.guard import Guard
from nvmesim.ui.jobs import Jobs, PageJob
from nvmesim.version import __version__

WARMING: Final = "nvmesim-ui-warming"
"""Name of the thread that loads the engine."""
NEWS_TRIES, NEWS_S = 10, 0.03
"""How long an answer waits for news of a job, so that the page need not ask again at once."""
ACTIONS: Final = (
    "design", "fits", "compare", "goal", "choose", "best", "describe", "calibrate", "check",
)  # fmt: skip
PAGES: Final = {"design": "Design", "drive": "Drive", "compare": "Compare", "choose": "Choose",
                "server": "Server", "check": "Check"}  # fmt: skip


def create_app(token: str, port: int, opened: Sequence[str] = ()) -> Starlette:
    """Return the app that answers below ``/TOKEN/`` at *port*, *opened* designs (TOML) first."""
    api = Api(opened)

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        # while the browser opens the page
        warming = threading.Thread(target=api.warm, name=WARMING)
        warming.start()
        yield
        await run_in_threadpool(api.close)
        await run_in_threadpool(warming.join)

    routes = [
        *(Route(f"/{name}", _page) for name in ("", *PAGES)),
        Route("/assets/{name}", _asset),
        *(Route(f"/api/{n}", posted(getattr(api, n)), methods=["POST"]) for n in ACTIONS),
        Route("/api/upload", uploaded(api), methods=["POST"]),
        Route("/api/job/{name}", _job),
        Route("/api/job/{name}/cancel", _cancel, methods=["POST"]),
        Route("/api/job/{name}/report", _report),
    ]
    guard = Middleware(Guard, token=token, port=port)
    app = Starlette(routes=routes, middleware=[guard], lifespan=living)
    app.state.api = api
    return app


def _page(request: Request) -> Response:
    name = request.scope["path"].strip("/") or "design"
    shown = form(name) if name in ("design", "choose") else []
    grouped = {k: list(v) for k, v in groupby(shown, lambda c: c.group)}
    return HTMLResponse(_TEMPLATES.get_template(f"{name}.html").render(
        page=name, pages=PAGES, groups=grouped, version=__version__, toml=to_text(start()),
        now=values(start()), parts=parts, opened=request.app.state.api.opened,
        goal=to_text(GOAL), levels=MD_LEVELS, examples=KEYS,
    ))  # fmt: skip


def _own(name: str) -> str:
    return (resources.files("nvmesim.ui") / name).read_text("utf-8")


_TEMPLATES: Final = Environment(
    autoescape=True, undefined=StrictUndefined,
    loader=FunctionLoader(lambda name: _own(f"templates/{name}")),
)  # fmt: skip
_ASSETS: Final[dict[str, Callable[[], str]]] = {
    # a fixed table: no name of a request becomes a path
    "report.css": lambda: asset("report.css"),
    "ui.css": lambda: _own("assets/ui.css"),
    "ui.js": lambda: _own("assets/ui.js"),
    "pages.js": lambda: _own("assets/pages.js"),
    "vega.js": lambda: f"(() => {{{bundle()}}})();",
}


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        return PlainTextResponse("no such file", 404)
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(await run_in_threadpool(_ASSETS[name]), media_type=kind)


def _asked(request: Request) -> PageJob | None:
    """The job that *request* names."""
    jobs: Jobs = request.app.state.api.jobs
    return jobs.get(request.path_params["name"])


async def _job(request: Request) -> Response:
    job = _asked(request)
    if job is None:
        return JSONResponse({"error": "this work is gone; ask again"}, 404)
    text = request.query_params.get("seen", "0")
    seen = int(text) if text.isdecimal() and len(text) < 9 else 0
    for _ in range(NEWS_TRIES):
        if job.version > seen or job.state != "running":
            break
        await asyncio.sleep(NEWS_S)
    return JSONResponse(job.to_json(seen))


def _cancel(request: Request) -> Response:
    jobs: Jobs = request.app.state.api.jobs
    return JSONResponse({"cancelled": jobs.cancel(request.path_params["name"])})


def _report(request: Request) -> Response:
    job = _asked(request)
    if job is None or not job.report.is_file():
        return PlainTextResponse("there is no answer yet to report", 404)
    file, kind = job.report, "text/html"
    if request.query_params.get("as") == "pdf":
        try:
            file, kind = pdf_of(job.report), "application/pdf"
        except NvmesimError as error:
            return PlainTextResponse(str(error), 409)
    headers = {"Content-Disposition": f'attachment; filename="nvmesim-report{file.suffix}"'}
    return FileResponse(file, headers=headers, media_type=kind)
