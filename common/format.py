"""Numbers as people read them: amounts, bytes, shares and durations; URLs as they may be shown. Pure functions, the same text
everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

NBSP = "\u00a0"  # between a number and its unit, where the line may be broken
DECIMAL = ("", "k", "M", "G", "T", "P")
BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
ESTIMATED = ("", "", " M", *(f"e{power}" for power in range(9, 31, 3)))
YEAR = 365 * 86_400.0
_SPANS = ((2 * 86_400, 86_400, "d"), (2 * 3600, 3600, "h"), (120, 60, "min"))
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_DURATIONS = (("years", YEAR), ("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0))


def number(value: float | int | None) -> str:
    """`1,234`, `0.873`, `12.5`; an en dash for none."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.3g}" if abs(value) < 1 else f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{int(value):,}"


def scaled(value: float, units: Sequence[str], gap: str = NBSP) -> str:
    """`value` with three digits in the largest of `units` (each 1,000 of the one before) of which it is at least 1
    when rounded: what would be 1,000 of one unit is 1 of the next. Whole numbers of the first unit."""
    step = 0
    while abs(value) >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    digits = f"{value:,.0f}" if step == 0 or abs(value) >= 999.5 else f"{value:.3g}"
    return f"{digits}{gap}{units[step]}".rstrip(NBSP)


def short(value: float | int) -> str:
    """A number where space is scarce: `950`, `12.3 k`, `4.56 M`, `7.89 G`."""
    return scaled(float(value), DECIMAL)


def compact(value: float | int) -> str:
    """The same without the space, for a table of a terminal: `12.3k`."""
    return scaled(float(value), DECIMAL, "")


def size(value: float | int | None) -> str:
    """Bytes in decimal units: `512 B`, `1.5 kB`, `23.4 MB`; an en dash for none."""
    return "–" if value is None else scaled(float(value), BYTES)


def plain_size(value: float) -> str:
    """Bytes as `size` has them, with an ordinary space: for a terminal."""
    return scaled(float(value), BYTES, " ")


def binary_size(exponent: int) -> str:
    """2 ** exponent bytes: `64 B`, `2 KiB`, `1 MiB`."""
    return f"{2 ** (exponent % 10)}{NBSP}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[exponent // 10]}"


def count(value: float) -> str:
    """An estimated number: `123,456`, whole below a million, then `1.23 M`, `1.23e9`, `12.3e12`."""
    return f"{value:,.0f}" if value < 999_999.5 else scaled(value, ESTIMATED, "")


def quantity(value: float | int, one: str, many: str = "") -> str:
    """A number with its noun: `1 task`, `1,234 tasks`; an estimated number (a float) as `count` has it. `many`: the plural, if it
    is more than an `s` at the end."""
    written = f"{value:,}" if isinstance(value, int) else count(value)
    return f"{written} {one if written == '1' else many or one + 's'}"


def head(text: str, width: int) -> str:
    """The beginning of a text, at most `width` characters, with an ellipsis for the rest."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def tail(text: str, width: int) -> str:
    """The end of a text, likewise."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


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


def percent(part: float, whole: float) -> str:
    """`part / whole` with three digits: `12.3 %`, `0.0123 %`."""
    return f"{100 * part / whole:.3g} %"


def span(seconds: float) -> str:
    """A time with three digits in the unit that fits: `1.5 ms`, `12.3 s`, `45 min`, `3.2 d`; below a microsecond `0 s`."""
    for limit, unit, name in _SPANS:
        if seconds >= limit:
            value = seconds / unit
            return f"{value:.3g} {name}" if value < 999.5 else f"{count(value)} {name}"
    if seconds >= 0.1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-6 else "0 s"


def short_span(seconds: float) -> str:
    """A time where space is scarce, at most six characters up to 999 days: `1.5s`, `12min`, `3.2h`, `100d`."""
    for length, name in _UNITS:
        if seconds >= length:
            value = seconds / length
            return f"{value:.2g}{name}" if value < 99.5 else f"{value:,.0f}{name}"
    return f"{seconds:.2g}s" if seconds >= 0.01 else "0s"


def duration(seconds: float) -> str:
    """A long time in words, in the largest unit that it fills: `1.25 days`, `3.50 hours`, `12.0 seconds`."""
    for unit, length in _DURATIONS:
        if seconds >= length:
            return f"{seconds / length:,.2f} {unit}"
    return f"{seconds:.1f} seconds"


def time_left(seconds: float) -> str:
    """A time to wait, to the minute: `40 s`, `12 min`, `2 h 05 min`, `3 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def rate(amount: float, seconds: float, unit: str) -> str:
    """`12.3 MB/s`, `1,234 MB/s`, `12.3 GB/s`, `12.3k tasks/s`, for `amount` in `unit`."""
    value = amount / max(seconds, 1e-9)
    if value >= 9_999.5:
        return f"{plain_size(value * 1e6) if unit == 'MB' else f'{compact(value)} {unit}'}/s"
    return f"{value:.1f} {unit}/s" if value < 999.95 else f"{value:,.0f} {unit}/s"


def without_query(url: str) -> str:
    """A URL of a web server without user, password, query and fragment, which may be secret; any other as it is."""
    if not url.startswith(("http://", "https://")):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


_USER = re.compile(r"(\w+)://[^/@\s'\"]+@")
_SIGNED = re.compile(
    r"(?<=[?&])((?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|token|access_token|api_key|password)=)"
    r"[^&\s'\"]+",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """A text, such as an error, whose URLs have no user, password and signature."""
    found = _USER.sub(lambda match: match[0] if match[1].startswith("abfs") else f"{match[1]}://***@", text)
    return _SIGNED.sub(r"\1***", found)
