"""A scenario whose points take a tenth of a second, and a cache of the test's own."""

import pytest

from nvmesim.scenario.load import scenario_from_dict, to_text

TABLES = {
    "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
    "drives": [{"profile": "samsung-980pro-1tb", "count": 1}],
    "workload": {"threads": 2, "outstanding": 4},
    "run": {"requests": 4000},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.fixture
def small():
    return scenario_from_dict(TABLES)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(to_text({**TABLES, "workload": [TABLES["workload"]]}), encoding="utf-8")
    return path
