"""The glossary of the documentation is that of the reports."""

from pathlib import Path

from nvmesim.show.report import GLOSSARY

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "report.md"


def test_the_page_says_what_the_reports_say():
    text = PAGE.read_text("utf-8")
    for word, meaning in GLOSSARY.items():
        assert f"{word}\n: {meaning[0].upper()}{meaning[1:]}.\n" in text
