"""The app behind a socket of this process, as `nvmesim ui` runs it."""

import threading
import time

import httpx
import pytest
import uvicorn

from nvmesim.ui.app import WARMING, create_app
from nvmesim.ui.serve import HOST, LAST_S, listening
from tests.children import until

TOKEN = "a-secret-of-this-run"
SMALL = """
name = "one drive"
[server]
stack = "linux-io_uring"
[[server.sockets]]
cpu = "xeon-gold-6130"
[[drives]]
profile = "samsung-980pro-1tb"
[[workload]]
threads = 1
outstanding = 4
slo = "1 ms"
"""

LSCPU = (
    "Architecture: x86_64\nCPU(s): 32\nThread(s) per core: 2\nCore(s) per socket: 16\n"
    "Socket(s): 1\nModel name: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz\n"
)


class Page:
    """What the page does: it asks below its address, and says where it comes from."""

    def __init__(self, client, port, api=None):
        self.api = api
        self.client, self.port, self.origin = client, port, f"http://{HOST}:{port}"
        self.address = f"{self.origin}/{TOKEN}/"

    def get(self, path="", **headers):
        return self.client.get(f"/{TOKEN}/{path}", headers=headers)

    def post(self, path, body):
        how = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self.client.post(f"/{TOKEN}/{path}", headers={"Origin": self.origin}, **how)

    def news(self, job):
        """What the job publishes first."""
        return self._polled(job, lambda found: found["html"] or found["state"] != "running")

    def wait(self, job, state="done"):
        found = self._polled(job, lambda found: found["state"] != "running")
        assert found["state"] == state, found["error"]
        return found

    def _polled(self, job, is_asked_for, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.get(f"api/job/{job}").json()
            if is_asked_for(found):
                return found
            time.sleep(0.01)
        raise AssertionError(f"the job was still running after {seconds} s: {found['what']}")


@pytest.fixture(scope="session")
def app_page():
    with listening(None) as ear:
        port = ear.getsockname()[1]
        app = create_app(TOKEN, port)
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=LAST_S)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [ear]}, daemon=True)
        thread.start()
        warmed(server)
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120) as client:
            yield Page(client, port, app.state.api)
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the app does not end"


def warmed(server):
    """Wait for the processes at hand: they would take what the first test sets in its environment.

    One that may hold next to nothing would fail every test that is given it, much later.
    """
    until(lambda: server.started)
    for thread in threading.enumerate():
        if thread.name == WARMING:
            thread.join(300)


@pytest.fixture
def page(app_page):
    """What a test began and did not wait for is stopped: it would run beside the next ones."""
    yield app_page
    app_page.api.jobs.cancel_all()
