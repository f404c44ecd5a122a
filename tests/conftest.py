"""What all tests share: settings, the installed browser for tests that click and look."""

import gc
import os
import shutil

import pytest
from hypothesis import settings

from nvmesim.code_cache import code_folder

# A busy machine breaks no law. The same examples each time, so that a failure is a change's fault;
# HYPOTHESIS_PROFILE=explore looks elsewhere in every run.
settings.register_profile("nvmesim", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "nvmesim"))

# Tests and commands that have a cache of their own need not compile the engine again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(code_folder()))

collect_ignore = ["mutation/check_kernel.py"]
"""Not a test by itself: it simulates some 300 networks when it is imported (`make mutation`)."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def chromium():
    """The installed Chromium, driven by Playwright."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed: nothing was opened in it")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: nothing was opened in Chromium"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_collection_finish(session):
    """Eight thousand tests and all modules stay to the end: not looked through for garbage again.

    That took one twentieth of the CPU time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_make_parametrize_id(config, val, argname):
    """Long texts have short names: a page of 16 MiB is no name of a test."""
    if isinstance(val, (str, bytes)) and len(val) > 80:
        return f"{argname} of {len(val)}"
    return None
