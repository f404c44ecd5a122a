"""What mail programs do to a capture, undone in one place before any reader sees it.

Headers and transfer encodings, quote marks of any depth, no-break spaces, signatures and the
footers of mailing lists. Source: RFC 5322, 2045 and 3676.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

from nvmesim.warning import Warning

if TYPE_CHECKING:
    from email.message import Message

MAIL: Final = "mail"
"""Code of the warning that says what was undone."""
_HEADERS: Final = re.compile(
    r"\A(?:From [^\n]*\n)?(?=(?:[A-Za-z][\w-]*:[^\n]*\n(?:[ \t][^\n]*\n){0,99}){3,})"
    r"(?=[\s\S]{0,20000}?^(?:Message-ID|MIME-Version|Received|Subject):)",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED_PRINTABLE: Final = re.compile(r"=3D|=\n|=C2=A0|=20\n")
_QUOTE: Final = re.compile(r"^[ \t]{0,3}(?:>(?!=)[ \t]?)+", re.MULTILINE)
"""``>=64`` begins a wrapped line of fio's depths, and quotes nothing."""
_BLANK: Final = re.compile(r"[\u00a0\u2007\u202f]")
_GROUPED: Final = re.compile(r"\d[\u00a0\u2007\u202f]\d{3}(?![\d.])")
"""A French thousand: 12 345."""
_INVISIBLE: Final = re.compile(r"[\u200b\u200c\u200d\u2060\ufeff]")
_FOOTER: Final = re.compile(
    r"^(?:-- \n(?:[^\n]+(?:\n|\Z)){1,8}|_{20,}\n(?:[^\n]*mailing list[^\n]*(?:\n|\Z))"
    r"(?:[^\n]+(?:\n|\Z)){0,3})(?=\s|\Z)",
    re.MULTILINE,
)
_TAG: Final = re.compile(r"</?[a-z!][^<>]{0,300}>", re.IGNORECASE)


def plain_mail(text: str) -> tuple[str, Warning | None]:
    r"""Return *text* as it was before it was mailed, and a warning that says what was undone.

    The warning is None if there was nothing to undo.

    >>> text, warning = plain_mail("> > fio-3.33\n> > Starting\u00a01 process\n")
    >>> text, warning.code
    ('fio-3.33\nStarting 1 process\n', 'mail')
    """
    if "\0" in text or text.lstrip()[:1] in ("{", "["):
        return text, None
    undone = []
    if _HEADERS.match(text):
        text = _body(text)
        undone.append("headers left out")
    if text.count("=3D") > 2 and len(_QUOTED_PRINTABLE.findall(text)) > 3:
        import quopri

        text = quopri.decodestring(text.encode()).decode("utf-8", "replace")
        undone.append("quoted-printable decoded")
    blanks = len(_BLANK.findall(text))
    if blanks > len(_GROUPED.findall(text)):
        text = _BLANK.sub(" ", text)
        undone.append(f"{blanks} no-break spaces")
    text = _INVISIBLE.sub("", text)
    if not text.lstrip().startswith("<") and len(_QUOTE.findall(text)) > 1:
        text, quoted = _QUOTE.subn("", text)
        undone.append(f"quote marks of {quoted} lines")
    text, footers = _FOOTER.subn("", text)
    if footers:
        undone.append(f"{footers} signatures or footers left out")
    return text, Warning(MAIL, f"read as a mail: {', '.join(undone)}") if undone else None


def _body(text: str) -> str:
    """Return the texts of a mail with headers; of one that has none, those of its pages."""
    import email

    mail = email.message_from_string(text)
    plain: list[str] = []
    pages: list[str] = []
    for part in mail.walk():
        if part.get_content_maintype() == "text":
            page = part.get_content_subtype() == "html"
            (pages if page else plain).append(_content(part))
    if plain:
        return "\n".join(plain)
    return html.unescape(_TAG.sub("", "\n".join(pages)))


def _content(part: Message) -> str:
    """Return the decoded text of *part*, whatever it says of its characters."""
    encoding = str(part.get("content-transfer-encoding", "")).strip().lower()
    raw = part.get_payload(decode=True)
    if encoding not in ("base64", "quoted-printable") or not isinstance(raw, bytes):
        payload = part.get_payload()
        return payload if isinstance(payload, str) else ""
    try:
        return raw.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")
