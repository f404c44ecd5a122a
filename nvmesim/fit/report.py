"""Measured against fitted, as one HTML page that loads nothing."""

from __future__ import annotations

from nvmesim.fit.evidence import DriveFit, StackFit
from nvmesim.result import page as html
from nvmesim.result.page import escaped


def fit_page(fit: DriveFit | StackFit) -> str:
    """Return the evidence of *fit* as one HTML page."""
    rows = [
        [escaped(j.point.name), f"{j.point.iops:,.0f}", f"{100 * j.residual['iops']:+.1f} %"]
        for j in fit.points
    ]
    parts = [
        f"<h1>{escaped(fit.profile.name)}</h1>",
        html.table(("point", "IOPS", "fitted"), rows),
        html.listing(fit.warnings),
    ]
    return html.document(f"{fit.profile.name} · nvmesim calibrate", "".join(parts))
