"""A real browser for pages that are meant for one."""

from dataclasses import dataclass

import pytest

DRAWN = (
    "document.querySelectorAll('svg.marks').length >= document.querySelectorAll('.chart').length"
)


@dataclass(frozen=True)
class Seen:
    """A page after its scripts have run."""

    dom: str
    console: list[str]


@pytest.fixture
def browser(chromium, tmp_path_factory):
    """Open a page in Chromium without a network; return its DOM, and all that it complained of."""

    def open_page(html: str) -> Seen:
        file = tmp_path_factory.mktemp("page") / "page.html"
        file.write_text(html, encoding="utf-8")
        console: list[str] = []
        context = chromium.new_context(offline=True)
        tab = context.new_page()
        tab.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: console.append(f"Error: {error}"))
        tab.on("dialog", lambda dialog: (console.append("Error: a dialog"), dialog.dismiss()))
        tab.goto(file.as_uri())
        tab.wait_for_function(DRAWN)
        seen = Seen(tab.content(), console)
        context.close()
        return seen

    return open_page
