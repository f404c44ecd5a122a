"""Self-contained HTML pages: nothing is loaded, and every text from the input is escaped."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from nvmesim.show import palette
from nvmesim.show.blocks import Block, Charts, Column, Line, Section
from nvmesim.show.words import one_line, percent, plural

if TYPE_CHECKING:
    from altair import LayerChart, VConcatChart

_MICRO = re.compile(r"(?<=\d) us\b")
GLYPH = 0.6
"""Mean width of a glyph in units of the font size; wide fonts (DejaVu Sans) need this much."""


def policy(nonce: str) -> str:
    """The page's own rule: only scripts that carry *nonce* run, and no code is made from text."""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def html(blocks: Iterable[Block]) -> Markup:
    r"""Return *blocks* as HTML.

    >>> html([Line("<b>", "soft")])
    Markup('<p class="soft">&lt;b&gt;</p>\n')
    """
    macros: Any = _environment().get_template("blocks.html").module
    shown = [str(getattr(macros, type(b).__name__.lower())(b)).strip() for b in blocks]
    return Markup("".join(f"{text}\n" for text in shown if text))


def template(name: str) -> str:
    """Return the text of a template of the pages, or of "package:NAME"."""
    package, _, file = name.rpartition(":")
    return (resources.files(package or "nvmesim.show") / "templates" / file).read_text("utf-8")


def rendered(name: str, **values: Any) -> str:
    """Return a `template` with its *values*."""
    return _environment().get_template(name).render(**values)


def document(title: str, blocks: Iterable[Block]) -> str:
    """Return a whole page, with the one copy of the charts' code, and contents of its sections."""
    shown = list(blocks)
    titles = [block.title for block in shown if isinstance(block, Section)]
    first = next((i for i, block in enumerate(shown) if isinstance(block, Section)), len(shown))
    # Altair takes a second to import, and a fragment needs none.
    from nvmesim.show.charts import bundle

    nonce = secrets.token_urlsafe(18)
    return rendered(
        "page.html", title=title, policy=Markup(policy(nonce)), nonce=nonce,
        head=html(shown[:first]), contents=titles if len(titles) > 1 else [],
        body=html(shown[first:]), css=Markup(asset("report.css")), bundle=Markup(bundle()),
        js=Markup(asset("report.js")),
    )  # fmt: skip


def chart_page(
    drawn: LayerChart | VConcatChart, title: str, *more: Block, first: Iterable[Block] = ()
) -> str:
    """Return a page with *first*, one chart or those of a column, then *more*."""
    stacked = getattr(drawn, "vconcat", None)
    found: dict[str, tuple[Any, str]] = {"": (drawn, "")}
    if stacked is not None:
        found = {str(c.title): (c, "") for c in stacked}
    return document(title, [Line(title, "title"), *first, Charts(found), *more])


def asset(name: str) -> str:
    """Return the text of a style sheet or script of the pages."""
    return (resources.files("nvmesim.show") / "assets" / name).read_text("utf-8")


def script_json(value: Any) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> script_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def _environment() -> Environment:
    def safe(value: Any) -> Any:
        """Take control characters out of each text that a template shows."""
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return _MICRO.sub(" µs", one_line(value)) if is_text else value

    made = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(template), finalize=safe
    )
    made.filters["n"] = lambda value: f"{value:.2f}".rstrip("0").rstrip(".")
    made.globals.update(
        html=html, plural=plural, heading=_heading, lines=_lines, percent=percent,
        figures_of=_figures_of, fitted=_fitted, palette=palette,
        anchor=lambda title: "-".join(re.findall("[a-z0-9]+", title.lower())),
        text_width=lambda text, size: len(text) * size * GLYPH,
        load_step=palette.load_step,
    )  # fmt: skip
    return made


def _figures_of(charts: Charts) -> Iterator[dict[str, Any]]:
    """Each chart as the template needs it: what it is called, its data, its words."""
    for title, (drawn, caption) in charts.all().items():
        spec: dict[str, Any] = drawn.properties(width="container").to_dict(
            validate=False, context={}
        )
        for key in ("$schema", "config", *(["title"] if title else [])):  # it stands above
            spec.pop(key, None)
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        says = spec.pop("description", None) or title or caption
        text = script_json(spec)
        name = f"spec-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        yield {"title": title, "caption": caption, "says": says, "spec": Markup(text), "id": name}


def _heading(column: Column) -> str:
    unit = column.unit.replace("us", "µs")
    return f"{column.name}, {unit}" if unit and column.name else column.name or unit


def _lines(text: str) -> Markup:
    """*text* with its line breaks, and nothing else that steers."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return Markup("\n").join(one_line(line) for line in lines)


def _fitted(text: str, width: float, size: float) -> str:
    """*text* on one line, cut with an ellipsis where it would be wider than *width*."""
    line = one_line(text)
    most = max(1, int(width / (size * GLYPH)))
    return line if len(line) <= most else line[: most - 1] + "…"
