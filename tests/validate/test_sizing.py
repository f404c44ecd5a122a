import json

import pytest

import nvmesim as ns
from nvmesim.catalog.load import get
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.study.size import Demand, loaded_cpu, rule_ghz_per_miops, smt_ghz_per_miops
from tests.servers import bare, one_server

STACK = get("stack", "windows-2019")


def asked(iops, utilization=0.5, stack=STACK):
    return Demand(iops, utilization, stack)


def test_the_published_rule_and_what_it_does_not_say():
    assert 24 <= rule_ghz_per_miops(asked(3e6)) <= 25.5
    sizing = ns.size_cpu(3e6, 0.5, "windows-2019")
    assert sizing.ghz == pytest.approx(75, abs=1.5)
    chosen = next(c for c in sizing.cpus if (c.name, c.sockets) == ("xeon-gold-6132", 2))
    assert chosen.carries
    assert chosen.ghz == pytest.approx(72.8)
    assert sizing.cpus[0] == chosen  # the fewest GHz that carry it
    # 2 x 6128: 40.8 GHz would be 3.27 MIOPS if siblings were whole cores.
    logical, physical = loaded_cpu(asked(2.72e6), get("cpu", "xeon-gold-6128"), 2)
    assert logical == 1
    assert physical > 1
    half, full = (smt_ghz_per_miops(asked(3e6, u)) for u in (0.5, 1.0))
    assert 1.2 < half / full < 1.5
    assert rule_ghz_per_miops(asked(3e6, 0.5)) / rule_ghz_per_miops(asked(3e6, 1.0)) == 2


@pytest.mark.parametrize("drives", [1, 2, 4])
def test_agrees_with_the_simulation(drives):
    tables = one_server(
        "intel-p4610-6.4tb", {"threads_total": 64, "outstanding": 16}, drives, sockets=2,
        stack="windows-2019", drive={"state": "fresh"},
    )  # fmt: skip
    result = bare(tables, requests=200_000, over_time=False)
    logical, physical = loaded_cpu(asked(result.total.iops.value), get("cpu", "xeon-gold-6130"), 2)
    assert logical == pytest.approx(result.cpu.logical_utilization, abs=0.01)
    assert physical == pytest.approx(result.cpu.physical_utilization, abs=0.01)


def test_headroom_reads_files_and_polled_threads_count():
    plain = ns.size_cpu(1e6)
    assert ns.size_cpu(1e6, headroom=0.2).ghz == pytest.approx(1.2 * plain.ghz)
    assert ns.size_cpu(1e6, filesystem="ntfs").ghz > ns.size_cpu(1e6, read=0.0).ghz > plain.ghz
    assert ns.size_cpu(1e6, stack="linux-libaio").ghz < 0.7 * plain.ghz
    sizing = ns.size_cpu(3e6, 0.5, "spdk", cpus=["xeon-gold-6130"])
    assert sizing.cpus[0].logical_utilization > 0
    assert sizing.ghz < 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"iops": 0}, "iops is 0"),
        ({"utilization": 1.5}, "utilization is 1.5; 0.01 to 1"),
        ({"headroom": -1}, "headroom"),
        ({"filesystem": "ntsf"}, "did you mean 'ntfs'"),
        ({"stack": "windows-2918"}, "did you mean 'windows-2019'"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(InputError, match=says):
        ns.size_cpu(**{"iops": 1e6, **change})


def test_the_margin_is_said_and_both_curves_are_drawn():
    """The interface lets 5 points over count as carried: the answer says by how much."""
    found = {(c.name, c.sockets): c for c in ns.size_cpu(3e6, 0.5, "windows-2019").cpus}
    over, under = found["xeon-gold-6132", 2], found["xeon-platinum-8380", 1]
    assert over.margin == pytest.approx(0.5 - over.logical_utilization)
    assert (over.carries, over.within) == (True, False)
    assert "points over" in over.words()
    assert (under.carries, under.within) == (True, True)
    assert "points under" in under.words()
    assert found["xeon-gold-6128", 2].words() == "no, full at 2.27M IOPS"
    sizing = ns.size_cpu(3e6, 0.5, "windows-2019", cpus=["xeon-gold-6132"])
    ghz, busy = sizing.chart().to_dict()["vconcat"]
    assert "GHz needed" in ghz["title"]
    assert "Utilization" in busy["title"]
    assert "6132" in sizing._repr_html_()


def test_command_line(capsys, tmp_path):
    assert run_command(["size", "--iops", "3M", "--utilization", "50%", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"ghz_per_miops", "ghz", "cpus", "smt", "curve"} <= answer.keys()
    first = answer["cpus"][0]
    assert {"name", "sockets", "ghz", "logical_utilization", "physical_utilization", "carries"} <= (
        first.keys()
    )
    own = tmp_path / "own.toml"
    own.write_text('kind = "stack"\nname = "own"\nsubmit = 5000\ncomplete = 5000\n')
    report = tmp_path / "size.html"
    assert run_command(["size", "--iops", "3M", "--from", str(own), "--report", str(report)]) == 0
    assert "10.0k cycles" in capsys.readouterr().out
    page = report.read_text()
    assert all(words in page for words in ("xeon-gold-6132", "GHz needed against MIOPS"))
    assert run_command(["size", "--iops", "3M", "--stack", "spdk", "--from", str(own)]) == 2
    assert "exclude each other" in capsys.readouterr().err
