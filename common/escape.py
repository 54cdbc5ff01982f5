"""Corpus text shown on a terminal, in HTML and in Markdown: characters that hide, reorder or command others are written
as their code points, and never acted upon."""

from __future__ import annotations

import re
from typing import Any, Final

from markupsafe import Markup, escape

# Control, bidi-control, tag and other invisible characters.
HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f"
)
_HIDDEN = re.compile(f"([{HIDDEN}])")
_OF_A_LINE = re.compile(rf"[{HIDDEN}\t\n]")


def spelled(text: str) -> str:
    r"""Text for one line of a terminal: such characters, tabs and line ends as escapes (`\u202e`, `\x1b`, `\n`)."""
    return _OF_A_LINE.sub(lambda found: repr(found[0])[1:-1], text)


def harmless(text: str) -> str:
    """Text for lines of a terminal, without such characters."""
    return _HIDDEN.sub("", text)


def visible(text: str | None) -> Markup:
    """Text from the corpus as markup: escaped, and characters that hide or reorder others written as their code points."""
    parts = _HIDDEN.split(text or "")
    return Markup("").join(  # odd places hold the captured characters
        Markup('<span class="ctl">U+{:04X}</span>').format(ord(part)) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def token(text: str) -> Markup:
    """A vocabulary entry: white space as signs, a long run of one character by its length."""
    signs = text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return visible(re.sub(r"(.)\1{7,}", lambda run: f"{run[1]} × {len(run[0])}", signs))


def breakable(name: str) -> Markup:
    """A long name as markup that may be broken after its dots, underscores and slashes."""
    return Markup("<wbr>").join(visible(part) for part in re.split(r"(?<=[._/#])(?=.)", name))


def code(value: Any) -> str:
    """A name as Markdown code, also inside a table."""
    return "`" + re.sub(r"[`|]", "", _HIDDEN.sub("", " ".join(str(value).split()))) + "`"


def markdown(value: Any) -> str:
    """Text for one cell or line of Markdown: no line breaks, no markup, no control characters."""
    text = _HIDDEN.sub("", " ".join(str(value).split()))
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


def code_block(value: str) -> str:
    """Text of several lines as a Markdown block of code: indented, without control characters."""
    return "\n".join(f"    {_HIDDEN.sub('', line)}".rstrip() for line in value.strip().splitlines())
