"""A drive from its data sheet: the figures fitted as rows, and marked as the vendor's."""

from dataclasses import replace

from nvmesim.calibrate.datasheet import Sheet
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Quantity
from nvmesim.catalog.quantity import with_numbers

DIES = "no sheet says it: dies / die time is what the sheet tells"


def fit_datasheet(
    sheet: Sheet, *, name: str | None = None, tell: Progress = lambda _: None
) -> DriveFit:
    """Fit a drive to the figures of *sheet*; capacity, link and power are the sheet's own."""
    title = name or sheet.texts.get("name") or sheet.file.stem
    fit = fit_drive(sheet.points(), name=title, link=sheet.link, tell=tell)
    said = {"basis": "datasheet", "source": sheet.source}
    numbers: dict[str, Quantity | str | bool] = {
        key: q.model_copy(update=said) for key, q in quantities(fit.profile) if q.basis == "fitted"
    }
    numbers["dies"] = fit.profile.dies.model_copy(update={"basis": "assumed", "source": DIES})
    if fit.profile.captured is not None:
        numbers["captured.datasheet"] = True
    more = {**sheet.besides(), "link": sheet.link}
    return replace(fit, profile=with_numbers(fit.profile, numbers | more))
