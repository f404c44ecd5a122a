"""The table of CPUs that carry a load, as a notebook shows it."""

from __future__ import annotations

from html import escape

from nvmesim.study.size import Sizing


def fragment(sizing: Sizing) -> str:
    """Return GHz needed and the CPUs that are nearest, as HTML."""
    rows = "".join(
        f"<tr><td>{escape(f'{c.sockets} x {c.name}')}</td><td>{c.ghz:.0f}</td>"
        f"<td>{c.logical_utilization:.0%}</td><td>{escape(c.words())}</td></tr>"
        for c in sizing.cpus
    )
    head = (
        f"{sizing.ghz_per_miops:.1f} GHz per MIOPS by the rule, {sizing.smt_ghz_per_miops:.1f} "
        f"with SMT counted: {sizing.ghz:.0f} and {sizing.smt_ghz:.0f} GHz in all"
    )
    return (
        f"<p>{escape(head)}</p><table><tr><th>CPUs</th><th>GHz</th><th>CPU %</th>"
        f"<th>carries it</th></tr>{rows}</table>"
    )
