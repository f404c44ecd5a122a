"""A drive from its data sheet: the figures fitted as rows, and marked as the vendor's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nvmesim.calibrate.datasheet import Sheet
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.catalog.profile import DriveProfile, Frozen, Quantity

DIES = "no sheet says it: dies / die time is what the sheet tells"


def fit_datasheet(
    sheet: Sheet, *, name: str | None = None, tell: Progress = lambda _: None
) -> DriveFit:
    """Fit a drive to the figures of *sheet*; capacity, link and power are the sheet's own."""
    title = name or sheet.texts.get("name") or sheet.file.stem
    fit = fit_drive(sheet.points(), name=title, link=sheet.link, tell=tell)
    said = sheet.texts.get("source") or f"data sheet {sheet.file.name}"
    profile = _printed(fit.profile, said)
    printed: dict[str, Any] = {
        "model": sheet.texts.get("model", ""),
        "interface": sheet.link[:3] if sheet.link[:3] == "sas" else
        "sata" if sheet.link.startswith("sata") else "nvme",
        "link": sheet.link,
        "capacity": Quantity(value=sheet.capacity, basis="datasheet", source=said),
    }  # fmt: skip
    for key in ("power_active", "power_idle"):
        if key in sheet.figures:
            printed[f"{key}_w"] = Quantity(value=sheet.figures[key], basis="datasheet", source=said)
    if profile.captured is not None:
        printed["captured"] = profile.captured.model_copy(update={"datasheet": True})
    return replace(fit, profile=profile.model_copy(update=printed))


def _printed(model: DriveProfile, said: str) -> DriveProfile:
    """*model* with every fitted number marked as of the sheet."""

    def marked(part: Frozen) -> Frozen:
        changed: dict[str, Any] = {}
        for name in type(part).model_fields:
            value = getattr(part, name)
            if isinstance(value, Quantity) and value.basis == "fitted":
                changed[name] = value.model_copy(update={"basis": "datasheet", "source": said})
            elif isinstance(value, Frozen) and not isinstance(value, Quantity):
                changed[name] = marked(value)
        return part.model_copy(update=changed)

    found = marked(model)
    if not isinstance(found, DriveProfile):
        return model
    dies = found.dies.model_copy(update={"basis": "assumed", "source": DIES})
    return found.model_copy(update={"dies": dies})
