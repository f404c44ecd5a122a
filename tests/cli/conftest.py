"""Run the command line in this process: quick, and with what it printed."""

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest

from nvmesim.cli.main import run_command
from nvmesim.scenario.load import to_text
from tests.servers import one_server

LOAD = {"block_size": "4 KiB", "threads": 1, "outstanding": 4}
SMALL = to_text(
    one_server("samsung-980pro-1tb", [LOAD], name="one drive", run={"requests": 20_000})
)


@dataclass(frozen=True)
class Said:
    """What a command line did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def _compiled_engine(tmp_path_factory):
    """Compile the engine before the first test: a cold cache would add its notice to stderr."""
    path = tmp_path_factory.mktemp("warm") / "one.toml"
    path.write_text(SMALL, encoding="utf-8")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run_command(["run", str(path), "--json"])


@pytest.fixture
def nvmesim(capfd):
    """Run ``nvmesim`` with the given arguments."""

    def run(*arguments: object) -> Said:
        code = run_command([str(a) for a in arguments])
        printed = capfd.readouterr()
        return Said(code, printed.out, printed.err)

    return run


@pytest.fixture
def scenario(tmp_path):
    """A scenario that takes well under a second."""
    path = tmp_path / "one.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path
