"""A drive from its data sheet: the figures fitted as rows, and marked as the vendor's."""

from dataclasses import replace
from typing import Any

from nvmesim.calibrate.datasheet import Sheet
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import DriveFit, with_numbers
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Quantity

DIES = "no sheet says it: dies / die time is what the sheet tells"


def fit_datasheet(
    sheet: Sheet, *, name: str | None = None, tell: Progress = lambda _: None
) -> DriveFit:
    """Fit a drive to the figures of *sheet*; capacity, link and power are the sheet's own."""
    title = name or sheet.texts.get("name") or sheet.file.stem
    fit = fit_drive(sheet.points(), name=title, link=sheet.link, tell=tell)
    said = {"basis": "datasheet", "source": sheet.texts.get("source")
            or f"data sheet {sheet.file.name}"}  # fmt: skip
    numbers = {key: q.model_copy(update=said) for key, q in quantities(fit.profile)
               if q.basis == "fitted"}  # fmt: skip
    numbers["dies"] = fit.profile.dies.model_copy(update={"basis": "assumed", "source": DIES})
    stated = {"capacity": sheet.capacity} | {
        f"{key}_w": sheet.figures[key] for key in ("power_active", "power_idle")
        if key in sheet.figures
    }  # fmt: skip
    printed: dict[str, Any] = {
        "model": sheet.texts.get("model", ""), "link": sheet.link,
        **{key: Quantity(value=value).model_copy(update=said) for key, value in stated.items()},
    }  # fmt: skip
    if fit.profile.captured is not None:
        printed["captured.datasheet"] = True
    return replace(fit, profile=with_numbers(fit.profile, numbers | printed))
