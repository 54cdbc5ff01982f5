"""Characters of corpus text that hide, reorder or command, spelled out wherever text is shown."""

from __future__ import annotations

import re
from typing import Final

# Control, bidi-control, tag and other invisible characters.
HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f"
)
_OF_A_LINE = re.compile(rf"[{HIDDEN}\t\n]")


def spelled(text: str) -> str:
    r"""Text for one line of a terminal: such characters, tabs and line ends as escapes (`\u202e`, `\x1b`, `\n`)."""
    return _OF_A_LINE.sub(lambda found: repr(found[0])[1:-1], text)
