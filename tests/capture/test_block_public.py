"""Published traces: damage, requests without an answer, and what is said of the others."""

from pathlib import Path

import pytest

from nvmesim.warning import has
from tests.capture.composed import FORMS, requests
from tests.capture.contract import read_text, sample, table

HEADER = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"
BAD = [
    "128166620794097839,hm,1,Read,3221266432,4096",
    "128166620794097838,hm,1,Write,-4096,4096,100",
    "128166620794097840,hm,1,Flush,0,0,10",
    ";;;",
    "128166620794097841,hm,1,Write,4096,NaN,10",
    "128166620794097841,hm,1,Write,4096,99999999999999999999999,10",
    "128166620794097841,hm,1,Write,4096,4096,-10",
    "128166620794097841,hm,1,Write,4096,4096,9223372036854775807",
]


def test_damage_is_counted(tmp_path: Path) -> None:
    good = FORMS["msr-cambridge"].text(requests(10))
    quoted = '"128166620794097842","hm",1,"write",4096,4096,10\n'
    cut = "128166620794097842,hm,1,Read,0,4096,1"
    text = HEADER + good + "\n\n" + "\n".join([*BAD, quoted + cut])
    capture = read_text(text, tmp_path)
    assert capture.rows == 11
    assert capture.skipped == len(BAD) + 1


def test_quoted_cells_are_read(tmp_path: Path) -> None:
    first, *rest = FORMS["msr-cambridge"].text(requests()).splitlines(keepends=True)
    # Quotes around what must be a number everywhere would be no MSR trace to the sniffer.
    quoted = ['"' + line.strip().replace(",", '","') + '"\n' for line in rest]
    plain, other = (table(read_text(first + "".join(t), tmp_path)) for t in (rest, quoted))
    assert other.equals(plain)


def test_requests_without_a_response_are_said(tmp_path: Path) -> None:
    capture = read_text(sample("public-trace/systor.csv"), tmp_path)
    assert (capture.rows, capture.skipped) == (57, 0)
    assert capture.warnings == ("3 requests without a response (left out)",)


def test_arrivals_only_is_said(tmp_path: Path) -> None:
    (m,) = read_text(sample("public-trace/k5cloud.csv"), tmp_path).measurements
    assert m.warnings == ("no latencies in this format: arrivals only",)


@pytest.mark.parametrize(("n", "rate"), [(2, 0.0), (3, 3 / 2.1)])
def test_two_requests_make_no_rate(n: int, rate: float, tmp_path: Path) -> None:
    rows = (f"7,R,{4096 * k},4096,{1577808000000000 + k * 1_050_000}\n" for k in range(n))
    (m,) = read_text("".join(rows), tmp_path, "trace.csv").measurements
    assert m.ops["read"].count == n
    assert m.ops["read"].iops == pytest.approx(rate)
    assert has(m.warnings, "few-requests") == (n == 2)
