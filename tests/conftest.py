"""The installed browser, for tests that click and look."""

import shutil

import pytest
from hypothesis import settings

settings.register_profile("nvmesim", deadline=None)  # a busy machine breaks no law
settings.load_profile("nvmesim")

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
