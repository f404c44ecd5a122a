"""Every link in the project's own text leads somewhere: file, and heading in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "calibration/**/*.md")
PAGES = sorted(
    page
    for pattern in PATTERNS
    for page in ROOT.glob(pattern)
    if "generated" not in page.relative_to(ROOT).parts
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Anchors of *page*, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    found = re.findall(r"^#{1,6} +(.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in found}


def generated() -> set[str]:
    """Names below docs/generated that docs/pages.py writes."""
    source = (ROOT / "docs" / "pages.py").read_text("utf-8")
    names = set(re.findall(r'"([\w/-]+\.md)":', source))
    sets = (ROOT / "calibration" / "published").glob("*/report.md")
    return names | {f"published/{report.parent.name}/report.md" for report in sets}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        inside = file.relative_to(ROOT / "docs") if file.is_relative_to(ROOT / "docs") else None
        if inside is not None and inside.parts[0] == "generated":
            assert "/".join(inside.parts[1:]) in generated(), (target, page)
            continue
        assert file.exists(), (target, page)
        if anchor:
            assert anchor in headings(file), (target, page)


def test_every_page_is_in_a_table_of_contents() -> None:
    docs = ROOT / "docs"
    listed = {docs / "index.md"}
    for page in docs.rglob("*.md"):
        for tree in TREE.findall(page.read_text("utf-8")):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            for entry in entries:
                listed |= set(page.parent.glob(f"{entry}.md"))
    heads = set(docs.glob("*-head.md"))  # parts of generated pages
    pages = {page for page in docs.rglob("*.md") if "generated" not in page.parts}
    assert pages - heads <= listed
