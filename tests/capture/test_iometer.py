"""Iometer's results."""

from pathlib import Path

from tests.capture.contract import read_text, refused, sample

RESULTS = sample("iometer/results.csv")
SPECIFICATION = "4096,100,70,100,0,1,4096,0"


def test_iometer_cut_in_its_processors_has_no_cpu_figure(tmp_path: Path) -> None:
    cut = RESULTS[: RESULTS.rindex("PROCESSOR,CPU 3")]
    first, second = read_text(cut, tmp_path).measurements
    assert first.cpu is not None
    assert second.cpu is None
    assert second.ops["read"].count == 2583021


def test_iometer_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    lines = RESULTS.split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("'Target Type"))
    for i in range(start, len(lines)):
        if not lines[i].startswith("20"):
            lines[i] = lines[i].replace(",", ";").replace(".", ",")
    capture, plain = (read_text(text, tmp_path) for text in ("\n".join(lines), RESULTS))
    assert [m.ops for m in capture.measurements] == [m.ops for m in plain.measurements]


def test_iometer_without_results_is_refused(tmp_path: Path) -> None:
    first, _, _ = RESULTS.partition("'Time Stamp\n2024-07-01 10:01")
    without_requests = first.replace(",2583021,", ",0,").replace(",1106960,", ",0,")
    for text in (RESULTS[: RESULTS.index("'Results")], without_requests):
        assert "is iometer without one whole result" in refused(text, tmp_path)


def test_specifications_and_rows_that_are_none(tmp_path: Path) -> None:
    for size in ("4096,100,70", "4096,100,-70,100,0,1,4096,0", "large,100,70,100"):
        capture = read_text(RESULTS.replace(SPECIFICATION, size, 1), tmp_path)
        assert capture.skipped == 1
        assert capture.measurements[0].conditions.block_size is None
        assert capture.measurements[0].conditions.access is None
    short = RESULTS.replace("\nALL,All,", "\nALL,All,1,2\nALL,All,", 1)
    assert read_text(short, tmp_path).skipped == 1
    blank = RESULTS.replace(
        "\n'Time Stamp\n2024-07-01 10:01", "\n\n ,\n'Time Stamp\n2024-07-01 10:01"
    )
    assert blank != RESULTS
    assert read_text(blank, tmp_path).rows == read_text(RESULTS, tmp_path).rows
