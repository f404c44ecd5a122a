"""The Choose page's form: every field is a key of the goal, and the TOML stands beside it."""

import tomllib

import pytest

from nvmesim.errors import InputError
from nvmesim.ui.controls import start
from nvmesim.ui.goal_form import START, parts, problem, put, values


@pytest.mark.parametrize(
    ("key", "typed", "table", "kept"),
    [
        ("candidates/drives.0.count", "4..12..4", "candidates", "4..12..4"),
        ("candidates/drives.0.profile", "a, b", "candidates", ["a", "b"]),
        ("candidates/volume.raid", ["raid6"], "candidates", ["raid6"]),
        ("constraints/survives", "2", "constraints", 2),
        ("constraints/price", "19999.5", "constraints", 19999.5),
        ("prices/xeon-gold-6130", "1900", "prices", 1900),
    ],
)
def test_what_is_typed_is_a_key_of_the_goal(key, typed, table, kept):
    changed = put(START, key, typed)
    assert changed[table][key.partition("/")[2]] == kept
    assert changed["name"] == START["name"]


def test_empty_fields_leave_keys_out_and_prices_are_asked_for_where_they_count():
    assert "p99" not in put(START, "constraints/p99", "")["constraints"]
    assert "volume.raid" not in put(START, "candidates/volume.raid", [])["candidates"]
    with pytest.raises(InputError, match="is not a number"):
        put(START, "constraints/price", "cheap")
    with pytest.raises(InputError, match="is not a field"):
        put(START, "scenario/server", "x")
    assert "p99" in problem(put(START, "constraints/p99", "soon"), start())
    assert problem(START, start()) == ""
    assert values(START)["candidates/volume.raid"] == ["raid10", "raid5", "raid6"]
    assert parts(START, start()) == []
    priced = put(START, "objective/minimize", "price")
    keys = [part["key"] for part in parts(priced, start())]
    assert keys == ["prices/server", "prices/kioxia-cd6-r-15.36tb", "prices/xeon-gold-6130"]
    assert parts(priced, start())[0]["label"] == "the rest of the server, EUR each"


def test_the_page_moves_the_toml_and_opens_no_file(page):
    body = {"goal": "", "toml": page.post("api/design", {}).json()["toml"]}
    moved = page.post("api/goal", {**body, "set": {"constraints/iops": "1M"}}).json()
    assert tomllib.loads(moved["goal"])["constraints"]["iops"] == "1M"
    assert "candidates" in moved["error"]
    for key in ("drives.0.profile", "server.sockets.*.cpu"):
        goal = f'[candidates]\n"{key}" = ["/etc/passwd.toml"]\n[constraints]\niops = "1/s"'
        for path in ("api/goal", "api/choose"):
            refused = page.post(path, {**body, "goal": goal})
            assert refused.status_code == 422
            assert "opens no files" in refused.json()["error"]
