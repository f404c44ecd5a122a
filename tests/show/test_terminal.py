"""What a person reads: numbers with four digits at most, one line each, nothing from the input."""

import dataclasses
import io

from rich.console import Console

from nvmesim.measure.figures import Interval
from nvmesim.show.terminal import result_view, show
from nvmesim.show.words import (
    kiops,
    microseconds,
    one_line,
    op_rows,
    percent,
    plus_minus,
    station_groups,
)
from tests.show.report_example import result


def printed(shown, width=120):
    out = io.StringIO()
    show(shown, console=Console(file=out, width=width, highlight=False))
    return out.getvalue()


def test_the_whole_answer_fits_a_screen():
    text = printed(result_view(result(24)))
    assert len(text.splitlines()) <= 24
    for words in ("1,872 k", "± 0.6 %", "GHz per MIOPS", "+31.0 %", "2 assumptions"):
        assert words in text


def test_a_table_of_one_operation_has_one_row():
    only_reads = dataclasses.replace(result(2), write=None)
    assert [row.name for row in op_rows(only_reads)] == ["read"]
    assert [row.name for row in op_rows(result(2))] == ["total", "read", "write"]


def test_percentiles_that_are_not_known_are_a_dash():
    whole = result(2)
    unknown = dict.fromkeys(whole.total.latency.percentiles)
    latency = dataclasses.replace(whole.total.latency, percentiles=unknown, mean=float("nan"))
    total = dataclasses.replace(whole.total, latency=latency)
    rows = op_rows(dataclasses.replace(whole, total=total))
    assert rows[0].latencies == ("-", "-", "-", "-")


def test_markup_in_names_is_text():
    text = printed(result_view(result(2, name="[bold]x[/bold]\x07\n[/]")))
    assert text.splitlines()[0] == "[bold]x[/bold]  [/]".replace("  ", " ")


def test_numbers():
    assert [kiops(v) for v in (0.0, 0.5, 99_949.0, 1e6, 12_345_678.0)] == [
        *("0", "0.5", "99.9 k", "1,000 k", "12,346 k")
    ]
    assert [microseconds(v) for v in (0.0, 99.99e-6, 1.0)] == ["0", "100", "1,000,000"]
    assert [percent(v) for v in (0.0004, 0.0999, 1.0, float("nan"))] == [
        *("0.0 %", "10.0 %", "100 %", "-")
    ]
    assert plus_minus(Interval(0.0, 0.0, 0.0)) == ""
    assert plus_minus(Interval(1.0, float("-inf"), float("inf"))) == ""


def test_one_line_takes_away_what_could_steer_a_terminal():
    assert one_line("a\r\n\tb\x1b]0;x\x07\u202ec\ud800") == "a b ]0;x c?"


def test_station_groups_follow_the_path_and_put_equals_together():
    groups = station_groups(result(8, adapters=True).stations)
    kinds = [g.kind for g in groups]
    assert kinds[0] == "thread"
    assert kinds.index("cpu") < kinds.index("raid-engine") < kinds.index("link")
    assert kinds[-1] == "drive"
    labels = {g.label: len(g.members) for g in groups}
    assert labels["adapter uplink up"] == 2
    assert labels["drive dies"] == 8


def test_a_single_drive_keeps_its_name():
    labels = [g.label for g in station_groups(result(1, 1).stations)]
    assert "drive0 dies" in labels


def test_drives_whose_names_have_blanks_are_put_together_too():
    named = [
        dataclasses.replace(s, name=s.name.replace(f"drive{s.drive}", f"rack {s.drive} left"))
        if s.drive is not None
        else s
        for s in result(4).stations
    ]
    assert "drive port up" in [g.label for g in station_groups(named)]
