"""Self-contained HTML pages: nothing is loaded, and every text from the input is escaped."""

from __future__ import annotations

import html
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from nvmesim.show.vega import bundle
from nvmesim.show.words import one_line

if TYPE_CHECKING:
    from altair import LayerChart, VConcatChart

NONCE_BYTES: Final = 18


def policy(nonce: str) -> str:
    """The page's own rule: only scripts that carry *nonce* run, and no code is made from text.

    A script of an input does not know the nonce, which is drawn for each page.
    """
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def escaped(text: object) -> str:
    """*text* on one line, safe between tags and in quoted attributes.

    >>> escaped('<b>"x"</b>')
    '&lt;b&gt;&quot;x&quot;&lt;/b&gt;'
    """
    return html.escape(one_line(str(text)), quote=True)


def lines_escaped(text: str) -> str:
    """*text* with its line breaks, safe between tags."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(html.escape(one_line(line), quote=True) for line in lines)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, classes: Sequence[str] = (),
    left: Sequence[int] = (), name: str = "table",
) -> str:  # fmt: skip
    """An HTML table; cells are HTML already, headings are text; *left*: left-aligned columns.

    Where it is wider than the screen it scrolls, with the keyboard too; *name* says what it is.
    """

    def cells(texts: Sequence[str], scope: str) -> str:
        """A row of headings, or one whose first cell is its heading."""
        parts = []
        for i, text in enumerate(texts):
            heading = bool(text) and (i == 0 or scope == "col")  # an empty one names nothing
            tag = f'th scope="{scope}"' if heading else "td"
            mark = ' class="left"' if i in left else ""
            parts.append(f"<{tag}{mark}>{text}</{tag[:2]}>")
        return "".join(parts)

    body = []
    for number, row in enumerate(rows):
        css = classes[number] if number < len(classes) else ""
        body.append(f"<tr{f' class={css}' if css else ''}>{cells(row, 'row')}</tr>")
    head = cells([escaped(h) for h in headings], "col")
    return scrolled(
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>", name
    )


def scrolled(inner: str, name: str) -> str:
    """HTML that may be wider than the screen, in a region that the keyboard scrolls."""
    text = escaped(name)
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{text}">{inner}</div>'


def listing(lines: Iterable[str]) -> str:
    """An HTML list of texts."""
    return f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, both texts."""
    return f"<dl>{''.join(f'<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>' for k, v in pairs)}</dl>"


def script_json(value: Any) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> script_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def figure(number: int, drawn: LayerChart, title: str, caption: str) -> str:
    """Where chart *number* goes, its data, and what a reader hears in its place."""
    spec: dict[str, Any] = drawn.properties(width="container").to_dict(context={})
    spec.pop("$schema", None)
    spec.pop("config", None)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    if title:
        spec.pop("title", None)  # it stands above
    heading = f"<h3>{escaped(title)}</h3>" if title else ""
    text = escaped(spec.pop("description", None) or title or caption)
    below = f"<figcaption>{escaped(caption)}</figcaption>" if caption else ""
    return (
        # Around the chart: on its own element Vega sets other words.
        f'<figure>{heading}<div role="img" aria-label="{text}">'
        f'<div class="chart" data-spec="spec{number}"></div></div>'
        f'<script type="application/json" id="spec{number}">{script_json(spec)}</script>'
        f"{below}</figure>"
    )


def figures(charts: Mapping[str, tuple[LayerChart, str]]) -> str:
    """All charts: title -> (chart, caption)."""
    parts = [figure(i, c, title, text) for i, (title, (c, text)) in enumerate(charts.items())]
    return f'<div class="charts">{"".join(parts)}</div>'


def section(title: str, body: str) -> str:
    """A part of the page under its heading, which the contents lead to."""
    return f'<section id="{anchor(title)}"><h2>{escaped(title)}</h2>{body}</section>'


def anchor(title: str) -> str:
    """The name of a section in an address.

    >>> anchor("Drives, per request")
    'drives-per-request'
    """
    return "-".join(re.findall("[a-z0-9]+", title.lower()))


def contents(titles: Iterable[str]) -> str:
    """Links to the sections."""
    links = "".join(f'<a href="#{anchor(t)}">{escaped(t)}</a>' for t in titles)
    return f'<nav aria-label="On this page">{links}</nav>'


def document(title: str, body: str) -> str:
    """The whole page with the one copy of the charts' code that it needs."""
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(nonce)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{asset('report.css')}</style></head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        "<noscript><p>The charts need JavaScript; the tables hold their numbers.</p></noscript>\n"
        f'<script nonce="{nonce}">{bundle()}</script>\n'
        f'<script nonce="{nonce}">{asset("report.js")}</script>\n</body></html>\n'
    )


def asset(name: str) -> str:
    """Return the text of a style sheet or script of the pages."""
    return (resources.files("nvmesim.show") / "assets" / name).read_text("utf-8")


def chart_page(drawn: LayerChart | VConcatChart, title: str, caption: str = "") -> str:
    """Return a page with one chart, or with those of a column."""
    column = getattr(drawn, "vconcat", None)
    found: dict[str, tuple[Any, str]] = {"": (drawn, caption)}
    if column is not None:
        found = {str(c.title): (c, "") for c in column}
    return document(title, f"<h1>{escaped(title)}</h1>{figures(found)}")
