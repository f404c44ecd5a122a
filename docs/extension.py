"""A small extension of Sphinx: formulas as MathML, and pages that are written from the program.

MathML needs no script: every current browser draws it. The pages go to ``docs/generated`` before
the sources are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import notebook_pages
import pages
from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=True))
    raise nodes.SkipNode


def _write_pages(app: Sphinx) -> None:
    target = Path(app.srcdir) / "generated"
    found = pages.all_pages()
    found |= notebook_pages.all_pages(Path(app.srcdir).parent / "build" / "notebooks")
    for name, text in found.items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text("utf-8") != text:  # else Sphinx reads it anew
            file.write_text(text, "utf-8")
    for file in target.rglob("*.md"):
        if file.relative_to(target).as_posix() not in found:
            file.unlink()


def _plain_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """References to the design's sections are for those who read the code."""
    for i, line in enumerate(lines):
        plain = re.sub(r" ?\(DESIGN \d\)", "", line)
        lines[i] = plain if line.startswith((" ", ">")) else plain.replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this module adds."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-process-docstring", _plain_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
