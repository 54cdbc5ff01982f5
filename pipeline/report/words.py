"""Numbers and texts as people read them: units, shares, and corpus text in which nothing can hide."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

from corpusmill.pipeline.text.escape import HIDDEN

NBSP = "\u00a0"  # between a number and its unit
# Shown by their code point, never acted upon.
_HIDDEN = re.compile(f"([{HIDDEN}])")


def number(value: float | int | None) -> str:
    """`1,234`, `0.873`, `12.5`, `3.2 M` for large ones; an en dash for none."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.3g}" if abs(value) < 1 else f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{int(value):,}"


def short(value: float | int) -> str:
    """A number for a tight place: `950`, `12.3 k`, `4.56 M`, `7.89 G`."""
    return _scaled(float(value), ("", "k", "M", "G", "T"))


def size(value: float | int | None) -> str:
    """Bytes in decimal units: `512 B`, `1.5 kB`, `23.4 MB`."""
    return "–" if value is None else _scaled(float(value), ("B", "kB", "MB", "GB", "TB", "PB"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    step = 0
    while abs(value) >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    digits = f"{value:.0f}" if step == 0 or abs(value) >= 99.95 else f"{value:.3g}"
    return f"{digits}{NBSP}{units[step]}".rstrip(NBSP)


def binary_size(exponent: int) -> str:
    """2 ** exponent bytes: `64 B`, `2 KiB`, `1 MiB`."""
    return f"{2 ** (exponent % 10)}{NBSP}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[exponent // 10]}"


def share(part: float | int, whole: float | int) -> str:
    """`part / whole` in percent: `12.3 %`, `0.04 %`, `< 0.01 %`; an en dash when there is no whole."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if percent == 0 or percent == 100:
        digits = f"{percent:.0f}"
    elif percent < 0.01:
        digits = f"<{NBSP}0.01"
    elif percent > 99.95:
        digits = f">{NBSP}99.9"  # not quite all of it must not look like all of it
    else:
        digits = f"{percent:.1f}" if percent >= 1 else f"{percent:.2g}"
    return f"{digits}{NBSP}%"


def visible(text: str | None) -> Markup:
    """Text from the corpus as markup: escaped, and whatever hides or reorders characters spelled out."""
    parts = _HIDDEN.split(text or "")
    return Markup("").join(  # odd places hold the captured characters
        Markup('<span class="ctl">U+{:04X}</span>').format(ord(part)) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def token(text: str) -> Markup:
    """A vocabulary entry: white space by signs, a long run of one character by its length."""
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
