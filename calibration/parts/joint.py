"""Give catalog drives that were made by hand the draws that their data sheets allow.

    python calibration/parts/joint.py

What nobody prints (how many dies, how long one is busy) moves in such a way that the figures of the
sheet stay: rates, and the latency of a lone request, which are known to 10 % (95 %).
Generated entries have such draws from their fit. The same profiles give the same files.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from nvmesim.catalog.load import get
from nvmesim.predict.uncertainty.design import design
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.units import PS_PER_S

DATA = Path(__file__).parents[2] / "nvmesim" / "catalog" / "data" / "drives"
NAMES = ("intel-p4510-1tb", "intel-p4610-1.6tb", "intel-p4610-6.4tb", "micron-7450-pro-3.84tb",
         "sas-ssd", "sata-ssd")  # fmt: skip
SHEET, ASSUMED = (math.log(factor) / Z95 for factor in (1.1, 1.5))
SHARE = 0.07
"""Of a lone read's time that its die and the rest may each be otherwise: both together 10 %."""
PS_PER_US = 1e6
COLUMNS = ("dies", "write.program")
FIGURE = re.compile(
    r'^((commands|read_bandwidth|write_bandwidth|base|die) = \{ value = )"([\d.]+)([^"]*)"'
    r"(?:, low = .*?, high = .*?)?, basis",
    re.M,
)


def factors() -> list[list[float]]:
    """Rows of `COLUMNS`: dies and program time together, and the rate of writes by itself."""
    signs = design(2).tolist()
    rows = [(math.exp(ASSUMED * structure), math.exp(SHEET * rate)) for structure, rate in signs]
    return [[dies, dies * rate] for dies, rate in rows]


def bounded(text: str, name: str) -> str:
    """*text* with the interval of each figure of the sheet; a lone latency moves its rest."""
    drive = get("drive", name)
    lone = drive.read.base.value + drive.read.die.value
    ceiling = drive.dies.value / math.exp(ASSUMED) / (drive.commands.value * 1.1) * PS_PER_S
    spans = iter((SHARE * lone, SHARE * lone, 0.1 * drive.write.base.value))

    def line(found: re.Match[str]) -> str:
        value, unit = float(found[3]), found[4]
        low, high = value / 1.1, value * 1.1
        if found[2] in ("base", "die"):
            rest = next(spans) / PS_PER_US
            low, high = max(value - rest, value / 5), value + rest
        if found[2] == "die":
            high = max(value, min(high, ceiling / PS_PER_US))
        ends = f'low = "{low:.4g}{unit}", high = "{high:.4g}{unit}"'
        return f'{found[1]}"{found[3]}{unit}", {ends}, basis'

    return FIGURE.sub(line, text)


def main() -> None:
    """Write the table ``joint`` of each drive and the intervals of its figures anew."""
    for name in NAMES:
        path = DATA / f"{name}.toml"
        text = re.sub(r"\n\[joint\]\n(?:.+\n)*", "", path.read_text("utf-8"))
        text = bounded(text, name)
        names = ", ".join(f'"{column}"' for column in COLUMNS)
        rows = ", ".join(f"[{', '.join(f'{x:.4g}' for x in row)}]" for row in factors())
        path.write_text(f"{text}\n[joint]\nnames = [{names}]\nfactors = [{rows}]\n", "utf-8")


if __name__ == "__main__":
    main()
