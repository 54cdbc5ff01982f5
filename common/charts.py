"""Charts as inline SVG: pure functions from numbers to markup, for the report, `lr-find`, `search` and the dashboard.

Colours are CSS classes, so that dark mode is CSS; texts are drawn for a width of about 360 px and grow with it. `page`
is an HTML page of charts and a table that loads nothing, `thin` what a curve of many points is drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from corpusmill.common.format import short

Point = tuple[float, float]
WIDTH = 360


def element(name: str, *inside: str | Markup, **attributes: str | float | None) -> Markup:
    """One SVG element; `class_` is `class`, `_` in names is `-`, floats are rounded to a tenth."""
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(coordinate(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    body = "".join(str(escape(part)) for part in inside)
    return Markup(f"<{name}{''.join(parts)}>{body}</{name}>")


def coordinate(value: str | float) -> str:
    """A number as markup holds it; a string as it is."""
    if isinstance(value, str):
        return value
    words = f"{value:.1f}".rstrip("0").rstrip(".")
    return "0" if words == "-0" else words


def figure(height: float, label: str, *inside: Markup, kind: str = "chart", width: float = WIDTH) -> Markup:
    """The outer `<svg>`: scales with its box, named for screen readers."""
    return element(
        "svg",
        *inside,
        class_=kind,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        role="img",
        aria_label=label,
    )


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """A line of text at its baseline."""
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def path(points: Sequence[Point]) -> str:
    """The `d` of an open path through the points, at least one."""
    return "M" + "L".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)


def bar(parts: Sequence[tuple[str, float]], whole: float, label: str) -> Markup:
    """A bar of stacked (class, amount) parts, `whole` being its full length."""
    drawn, x = [], 0.0
    for class_, amount in parts:
        width = 100 * amount / whole if whole else 0
        if amount:
            drawn.append(element("rect", x=x, y=0, width=max(width, 0.4), height=10, class_=class_))
        x += width
    return element(
        "svg", element("title", label), *drawn, class_="bar", viewBox="0 0 100 10",
        preserveAspectRatio="none", role="img", aria_label=label,
    )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """A plot area with both axes' scales."""

    x_low: float
    x_high: float
    y_high: float
    height: float = 190
    log: bool = False  # of x
    width: float = WIDTH
    left: float = 44
    top: float = 12
    y_low: float = 0
    margin: float = 10  # at the right

    @property
    def right(self) -> float:
        return self.width - self.margin

    @property
    def bottom(self) -> float:
        return self.height - 34

    def x(self, value: float) -> float:
        low, high, at = self.x_low, self.x_high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.x_low))
        return self.left + (self.right - self.left) * (at - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - self.y_low) / (
            (self.y_high - self.y_low) or 1
        )

    def axes(
        self,
        x_ticks: Sequence[tuple[float, str]],
        y_label: Callable[[float], str],
        x_title: str,
        intervals: int = 2,
    ) -> list[Markup]:
        """Grid lines at the ends of `intervals` equal parts of y; ticks below."""
        parts = []
        for part in range(intervals + 1):
            value = self.y_low + (self.y_high - self.y_low) * (part / intervals)
            y = self.y(value)
            parts.append(element("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid-line"))
            parts.append(text(self.left - 5, y + 4, y_label(value), "tick", "end"))
        for value, words in x_ticks:
            place = min(max(self.x(value), self.left + 8), self.right - 8)
            parts.append(text(place, self.bottom + 14, words, "tick", "middle"))
        parts.append(text((self.left + self.right) / 2, self.bottom + 29, x_title, "axis", "middle"))
        return parts


def columns(
    labels: Sequence[str], every: Sequence[float], kept: Sequence[float] | None, x_title: str, label: str,
    titles: Sequence[str],
) -> Markup:  # fmt: skip
    """Columns, one a label; with `kept`, its part of each column is drawn over it."""
    frame = Frame(0, max(len(labels), 1), nice(max([*every, 1])))
    step = (frame.right - frame.left) / max(len(labels), 1)
    stride = math.ceil(len(labels) * 48 / (frame.right - frame.left)) if labels else 1
    wide = min(step * 0.8, 56)
    ticks = [(i + 0.5, words) for i, words in enumerate(labels) if i % stride == 0]
    parts = frame.axes(ticks, short, x_title)
    for i, amount in enumerate(every):
        x = frame.left + step * (i + 0.5) - wide / 2
        drawn = [(amount, "c-all" if kept else "c-kept"), *([(kept[i], "c-kept")] if kept else [])]
        bars = [
            element("rect", x=x, y=frame.y(n), width=wide, height=frame.bottom - frame.y(n), class_=c)
            for n, c in drawn
            if n
        ]
        parts.append(element("g", element("title", titles[i]), *bars))
    return figure(frame.height, label, *parts)


def nice(value: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5, 6, 8 or 10 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next((n * power for n in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if n * power >= value * 0.999), 10 * power)


def round_numbers(low: float, high: float, log: bool) -> list[float]:
    """Up to five round numbers inside [low, high]: multiples of one step, or powers of ten."""
    if log:
        powers = [10.0**p for p in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        if len(powers) >= 2:
            return powers[:: math.ceil(len(powers) / 5)]
    step = nice((high - low) / 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def tick(value: float) -> str:
    """A number beside an axis."""
    return short(value) if abs(value) >= 1000 else f"{value:.3g}"


class Line(NamedTuple):
    """A curve: its name, (x, y) points, and further CSS classes."""

    name: str
    points: Sequence[Point]
    kind: str = ""


class Dot(NamedTuple):
    """A point: x, y (None: drawn below all others), its CSS class, and its title."""

    x: float
    y: float | None
    kind: str
    title: str


def _plot_area(xs: Sequence[float], low: float, high: float, log: bool) -> Frame:
    """The frame of a line chart or a scatter plot; x is logarithmic if `log` and all of `xs` are positive."""
    left, right = min(xs, default=0.0), max(xs, default=1.0)
    if not left < right:
        left, right = (left / 2, right * 2) if log and left > 0 else (left - 0.5, right + 0.5)
    if not low < high:
        low, high = low - 0.5, high + 0.5
    return Frame(left, right, high, 300, log and left > 0, 640, 64, 24, low, 30)


def _titled_axes(
    frame: Frame, x_title: str, y_title: str, ticks: Sequence[tuple[float, str]] | None = None
) -> list[Markup]:
    if ticks is None:
        span = frame.x_high - frame.x_low
        at = (
            [frame.x_low * (frame.x_high / frame.x_low) ** (i / 4) for i in range(5)]
            if frame.log
            else [frame.x_low + span * i / 4 for i in range(5)]
        )
        ticks = [(value, f"{value:.2g}" if frame.log else tick(value)) for value in at]
    return [
        *frame.axes(ticks, "{:.4g}".format, x_title, 4),
        text(frame.left, frame.top - 10, y_title, "axis"),
    ]


def line_chart(
    lines: Sequence[Line], marks: Mapping[str, float], x_title: str, y_title: str, *, log: bool = False,
    top: float | None = None,
) -> Markup:  # fmt: skip
    """Curves, and named vertical lines at `marks`; values above `top` are drawn at it."""
    points = [point for line in lines for point in line.points]
    ys = [y for _, y in points]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    frame = _plot_area([x for x, _ in points], low, high if top is None else min(high, top), log)
    parts = _titled_axes(frame, x_title, y_title)
    for line in lines:
        if line.points:
            drawn = path([(frame.x(x), frame.y(min(y, frame.y_high))) for x, y in line.points])
            parts.append(
                element("path", element("title", line.name), class_=f"line {line.kind}".rstrip(), d=drawn)
            )
    for place, (name, x) in enumerate(marks.items(), 1):
        at = min(max(frame.x(x), frame.left), frame.right)
        parts.append(element("line", x1=at, x2=at, y1=frame.top, y2=frame.bottom, class_="mark"))
        parts.append(text(at + 4, frame.top + 14 * place, f"{name} {x:.2e}", "tick"))
    return figure(frame.height, y_title, *parts, width=frame.width)


def scatter(
    dots: Sequence[Dot], x_title: str, y_title: str, names: Sequence[str] = (), log: bool = False
) -> Markup:
    """Dots, those without a value at the bottom; with `names`, x is an index of them. The best is drawn last."""
    ys = [dot.y for dot in dots if dot.y is not None]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    margin = (high - low) / 12
    xs = [-0.5, len(names) - 0.5] if names else [dot.x for dot in dots]
    frame = _plot_area(xs, low - margin, high + margin, log)
    parts = _titled_axes(frame, x_title, y_title, list(enumerate(names)) if names else None)
    for dot in sorted(dots, key=lambda dot: dot.kind == "best"):
        y = frame.bottom - 4 if dot.y is None else frame.y(dot.y)
        parts.append(
            element("circle", element("title", dot.title), class_=dot.kind, cx=frame.x(dot.x), cy=y, r=4.5)
        )
    return figure(frame.height, f"{y_title} by {x_title}", *parts, width=frame.width)


STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#8888;--line:#1864ab;--bad:#c92a2a;--mark:#2b8a3e;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--line:#74c0fc;--bad:#ff8787;--mark:#8ce99a;--paper:#16181b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:52rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:var(--ink)}
.grid-line{stroke:var(--soft);stroke-width:.5}.line{fill:none;stroke:var(--line);stroke-width:2}.faint{stroke-width:1;opacity:.4}
.band{fill:var(--soft);opacity:.35}.mark{stroke:var(--mark);stroke-dasharray:4 3}.dot{fill:var(--line)}.best{fill:var(--mark)}.pruned{fill:none;stroke:var(--bad)}
div{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{border-bottom:1px solid var(--soft);padding:.2rem .7rem;text-align:left}
"""


def page(title: str, words: str, charts: Sequence[Markup], rows: Sequence[Sequence[str]]) -> str:
    """One HTML page that loads nothing: a heading, a sentence, charts, and a table whose first row is its heading."""
    head, *body = rows
    lines = [element("tr", *(element("th", cell) for cell in head))]
    lines += [element("tr", *(element("td", cell) for cell in row)) for row in body]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width,initial-scale=1">{element("title", title)}<style>{STYLE}</style></head><body>'
        f"{element('h1', title)}{element('p', words)}{Markup('').join(charts)}"
        f"{element('div', element('table', *lines))}</body></html>\n"
    )


def thin(
    steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], limit: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """At most `limit` points (at least 4) of a curve: the first, the last, and of each of equal runs of points the
    lowest and the highest, in their order. A spike of one point is kept, however long the curve is."""
    if len(values) <= limit:
        return steps, values
    edges = np.linspace(0, len(values), (limit - 2) // 2 + 1).astype(np.int64)
    kept = {0, len(values) - 1}
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        piece = values[low:high]
        kept |= {low + int(piece.argmin()), low + int(piece.argmax())}
    places = np.array(sorted(kept))
    return steps[places], values[places]
