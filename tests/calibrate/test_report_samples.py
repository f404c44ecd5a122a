"""Pages of fits to single requests, and what is held out of a trace."""

from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.drive.empirical import fit_empirical
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_capture
from nvmesim.cli.calibrate import fit_capture
from nvmesim.errors import FitError, UnitError
from nvmesim.show.charts.fit_charts import episodes_in, nines_of, residuals
from nvmesim.show.views.fits import fit_page

ROOT = Path(__file__).parents[2]
LOG = ROOT / "calibration" / "local-disk" / "logs" / "randread_qd16_each_clat.1.log.gz"
TRACE = Path(__file__).parent / "data" / "blkparse_qd4_emulated.txt.gz"


def test_the_page_of_an_empirical_drive_has_its_charts_and_percentiles():
    text = fit_page(fit_empirical(read_capture(LOG), name="log"))
    for part in ("Distribution of latency, reads", "Latency over time, reads",
                 "p99.9", "As a file"):  # fmt: skip
        assert part in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_pauses_of_the_local_disk_are_episodes():
    samples = np.asarray(fit_empirical(read_capture(LOG), name="log").profile.latencies.read_us)
    seconds = samples / 1e6
    found = episodes_in(np.cumsum(seconds) / 16, seconds)
    assert found.count >= 4


def test_residuals_of_a_tenth_are_drawn_as_a_tenth():
    measured = np.linspace(1e-5, 2e-5, 2000)
    rows = residuals(measured, 1.1 * measured).to_dict(context={})
    drawn = [r["off"] for data in rows["datasets"].values() for r in data if "nines" in r]
    assert drawn == pytest.approx([10.0] * len(drawn), abs=0.01)
    assert nines_of(measured).max() == pytest.approx(np.log10(200))


@pytest.mark.parametrize(
    ("rule", "said"),
    [("QD=4", "write LAST=50%"), ("LAST=95%", "write LAST=0% to 90%"), ("LAST=much", "much")],
)
def test_of_a_trace_its_end_is_held_out(rule, said):
    captures = Captures(files=(read_capture(TRACE),))
    with pytest.raises((FitError, UnitError), match=said):
        fit_capture(captures, "x", None, (rule,), lambda _: None)
