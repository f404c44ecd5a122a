"""fio job files as workloads. Options and defaults: fio's own documentation (HOWTO)."""

from __future__ import annotations

import shlex
from pathlib import Path

from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.loads.fio_options import HONOURED, IGNORED, REFUSED, fields_of
from nvmesim.scenario.loads.fio_words import ALIASES
from nvmesim.scenario.loads.load import ParsedLoad, Section


def load(reference: str, base: Path, *, key: str = "fio") -> list[ParsedLoad]:
    """Return the loads of the fio job file *reference*, one for each section that runs.

    "job.fio#name" takes one section; a text that begins with "--" is read as fio's command line.
    ScenarioError names file, line and option.
    """
    if reference.startswith(("--", "fio ")):
        return [fields_of(section, key) for section in from_command_line(reference, key)]
    text, _, chosen = reference.partition("#")
    path = base / text
    try:
        content = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ScenarioError(f"{key} is {text!r}; there is no such file") from None
    except (OSError, UnicodeDecodeError):
        raise ScenarioError(f"{key} is {text!r}; it cannot be read as text") from None
    return parse(content, chosen=chosen, where=f"{key}: {text}")


def parse(content: str, *, chosen: str = "", where: str = "fio") -> list[ParsedLoad]:
    r"""Return the loads of a job file's *content*.

    >>> loads = parse("[global]\niodepth=32\nioengine=libaio\n[a]\nrw=randread\nnumjobs=4")
    >>> loads[0].fields["threads"], loads[0].fields["outstanding"], loads[0].fields["read"]
    (4, 32, 1.0)
    >>> loads[0].ignored
    ('ioengine=libaio',)
    """
    sections = read_sections(content, where)
    if not sections:
        raise ScenarioError(f"{where}: has no job section, such as [job]")
    if chosen:
        sections = [_chosen(sections, chosen, where)]
    elif any(_is_serial(section) for section in sections[1:]):
        names = ", ".join(section.name for section in sections)
        raise ScenarioError(
            f"{where}: its sections run one after another (stonewall); name one of {names}, "
            f"as 'FILE#{sections[0].name}'"
        )
    return [fields_of(section, where) for section in sections]


def _is_serial(section: Section) -> bool:
    """True if the section waits for those before it."""
    return any(section.options.get(key, "0") != "0" for key in ("stonewall", "wait_for_previous"))


def _chosen(sections: list[Section], name: str, where: str) -> Section:
    for section in sections:
        if section.name == name:
            return section
    known = [section.name for section in sections]
    raise ScenarioError(f"{where}: has no section {name!r}; {nearest(name, known)}")


def read_sections(content: str, where: str) -> list[Section]:
    """Return the job sections; a [global] holds for the sections behind it."""
    common: dict[str, str] = {}
    sections: list[Section] = []
    current: dict[str, str] | None = None
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        if text.startswith("["):
            name = _section_name(text, f"{where}:{number}")
            current = common if name == "global" else dict(common)
            if name != "global":
                sections.append(Section(name, current))
            continue
        if current is None:
            raise ScenarioError(f"{where}:{number}: {text!r} stands before the first section")
        option, value = _option(text, f"{where}:{number}")
        current[option] = value
        if sections and current is sections[-1].options:
            sections[-1].where[option] = number
    return sections


def _section_name(text: str, where: str) -> str:
    if not text.endswith("]") or len(text) < 3:
        raise ScenarioError(f"{where}: {text!r} is not a section; write for example [job]")
    return text[1:-1].strip()


def _option(text: str, where: str) -> tuple[str, str]:
    """Return (name, value) of one line; a name alone means 1."""
    name, equals, value = text.partition("=")
    name = name.strip().lower()
    name = ALIASES.get(name, name)
    if name in REFUSED and not REFUSED[name][0](value.strip()):
        raise ScenarioError(f"{where}: {text!r} {REFUSED[name][1]}")
    if not (name in HONOURED or name in IGNORED or name in REFUSED):
        known = [*HONOURED, *IGNORED, *REFUSED]
        raise ScenarioError(f"{where}: {name!r} is not a known fio option; {nearest(name, known)}")
    return name, value.strip() if equals else "1"


def from_command_line(line: str, key: str) -> list[Section]:
    """Return the jobs of a fio command line; ``--name`` begins each but the first."""
    try:
        words = shlex.split(line)
    except ValueError:
        raise ScenarioError(f"{key}: {line!r} has an unclosed quote") from None
    common: dict[str, str] = {}
    sections: list[Section] = []
    for word in words[1:] if words[:1] == ["fio"] else words:
        if not word.startswith("--"):
            raise ScenarioError(f"{key}: {word!r} is not an option; write --option=value")
        if word.startswith("--name="):
            sections.append(Section(word[len("--name=") :], dict(common)))
            continue
        name, value = _option(word[2:], key)
        (sections[-1].options if sections else common)[name] = value
    return sections or [Section("fio", common)]
