"""Charts as inline SVG: pure functions from numbers to markup. Colours are CSS classes, so that dark mode is
CSS; texts are drawn for a width of about 360 px and grow with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from corpusmill.pipeline.report.words import number, share, short

Point = tuple[float, float]
WIDTH = 360


def element(name: str, *inside: str | Markup, **attributes: str | float | None) -> Markup:
    """One SVG element; `class_` is `class`, `_` in names is `-`, floats are rounded to a tenth."""
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    body = "".join(str(escape(part)) for part in inside)
    return Markup(f"<{name}{''.join(parts)}>{body}</{name}>")


def _short(value: str | float) -> str:
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
        viewBox=f"0 0 {_short(width)} {_short(height)}",
        role="img",
        aria_label=label,
    )


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """A line of text at its baseline."""
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def path(points: Sequence[Point]) -> str:
    """The `d` of an open path through the points."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)


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
class Step:
    """One stage of a flow: what leaves it to the side, and what goes on, in one unit."""

    name: str
    removed: float
    quarantined: float
    goes_on: float
    lines: tuple[str, ...] = ()  # said beside the branch


TRUNK = 118.0
LEFT = 6.0
BRANCH = LEFT + TRUNK + 34  # where branches end and their labels begin


def flow(start: float, head: Sequence[str], steps: Sequence[Step], foot: Sequence[str], label: str) -> Markup:
    """A stream from top to bottom that narrows as branches leave it to the right; widths are true to scale.

    Step lines say it in words. Nothing coming in draws as nothing.
    """
    scale = TRUNK / max([start, *(s.removed + s.quarantined + s.goes_on for s in steps), 1e-9])
    parts: list[Markup] = [element("rect", x=LEFT, y=4, width=start * scale, height=40, class_="f-kept")]
    parts += _lines(BRANCH + 8, 20, head)
    y = 44.0
    for step in steps:
        y = _step(parts, step, scale, y)
    last = (steps[-1].goes_on if steps else start) * scale
    if last:
        tip, middle = y + 34, LEFT + last / 2
        arrow = [(LEFT, y), (LEFT + last, y), (LEFT + last, y + 20), (middle, tip), (LEFT, y + 20)]
        parts.append(element("path", d=path(arrow) + "Z", class_="f-kept"))
    parts += _lines(BRANCH + 8, y + 16, foot)
    return figure(y + 24 + 16 * max(1, len(foot)), label, *parts, kind="flow")


def _step(parts: list[Markup], step: Step, scale: float, y: float) -> float:
    """Draw one stage from `y` on; where it ends."""
    right = LEFT + (step.removed + step.quarantined + step.goes_on) * scale
    bend = y + 22
    for amount, class_, what in (
        (step.removed, "f-removed", "removed"),
        (step.quarantined, "f-quarantined", "quarantined"),
    ):
        wide = amount * scale
        if not amount:
            continue
        thick = max(wide, 1.2)
        title = element("title", f"{step.name}: {what} {number(amount)}")
        parts.append(element("path", title, d=_branch(right, y, bend, thick), class_=class_))
        right -= wide
        bend += thick + 3
    lines = _lines(BRANCH + 8, y + 24, [step.name, *step.lines], first="f-name")
    parts += lines
    end = max(bend + 14, y + 24 + 16 * len(lines) + 8)
    wide = step.goes_on * scale
    title = element("title", f"{step.name}: {number(step.goes_on)} go on")
    if wide:
        parts.append(
            element("rect", title, x=LEFT, y=y, width=max(wide, 0.6), height=end - y, class_="f-kept")
        )
    parts.append(element("line", x1=LEFT, x2=WIDTH, y1=y, y2=y, class_="f-line"))
    return end


def _branch(right: float, y: float, bend: float, thick: float) -> str:
    """From a slice of the stream at height `y` down and round to a level end at `bend`."""
    a, b = _short(right), _short(right - thick)
    top, low, start = _short(bend), _short(bend + thick), _short(y)
    return (
        f"M{a},{start}C{a},{top} {a},{top} {_short(BRANCH)},{top}L{_short(BRANCH)},{low}"
        f"C{b},{low} {b},{low} {b},{start}Z"
    )


def _lines(x: float, y: float, lines: Sequence[str], first: str = "f-name") -> list[Markup]:
    return [text(x, y + 16 * i, line, first if i == 0 else "f-text") for i, line in enumerate(lines)]


@dataclass(frozen=True)
class Frame:
    """A plot area with both axes' scales."""

    x_low: float
    x_high: float
    y_high: float
    height: float = 190
    log: bool = False
    width: float = WIDTH
    left: float = 44
    top: float = 12

    @property
    def right(self) -> float:
        return self.width - 10

    @property
    def bottom(self) -> float:
        return self.height - 34

    def x(self, value: float) -> float:
        low, high, at = self.x_low, self.x_high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.x_low))
        return self.left + (self.right - self.left) * (at - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / (self.y_high or 1)

    def axes(
        self, x_ticks: Sequence[tuple[float, str]], y_label: Callable[[float], str], x_title: str
    ) -> list[Markup]:
        """Grid lines at the top, middle and bottom; ticks below."""
        parts = []
        for part in (0, 0.5, 1):
            y = self.y(part * self.y_high)
            parts.append(element("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid-line"))
            parts.append(text(self.left - 5, y + 4, y_label(part * self.y_high), "tick", "end"))
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


@dataclass(frozen=True)
class Removal:
    """What a rule removes at each threshold, and what of it no other rule would, of all that there is."""

    name: str
    class_: str
    failed: Sequence[float]
    marginal: Sequence[float]
    of: float

    def shares(self, amounts: Sequence[float]) -> list[float]:
        return [n / self.of if self.of else 0.0 for n in amounts]


def threshold_curve(
    grid: Sequence[float], removals: Sequence[Removal], now: float, log: bool, x_title: str, label: str
) -> Markup:
    """Share that a rule removes by its threshold (a line each), and that it alone removes (dashed, shaded); `now`
    marked, and told for the first of `removals`."""
    at = list(grid).index(now)
    top = max([0.001, *(n for one in removals for n in one.shares(one.failed))])
    frame = Frame(grid[0] if not log else max(grid[0], 1e-9), grid[-1], min(1.0, nice(top)), 170, log, 290)
    ticks = [(v, _tick(v)) for v in round_numbers(frame.x_low, frame.x_high, log)]
    parts = frame.axes(ticks, lambda v: f"{100 * v:.3g} %", x_title)
    for one in reversed(removals):
        every, alone = (
            [(frame.x(x), frame.y(n)) for x, n in zip(grid, one.shares(amounts), strict=True)]
            for amounts in (one.failed, one.marginal)
        )
        floor = [(every[-1][0], frame.bottom), (every[0][0], frame.bottom)]
        parts += [
            element("path", d=path([*alone, *floor]) + "Z", class_=f"a-{one.class_}"),
            element("path", element("title", one.name), d=path(every), class_=f"l-{one.class_}"),
            element(
                "path",
                element("title", f"{one.name}, of it alone"),
                d=path(alone),
                class_=f"l-{one.class_} alone",
            ),
        ]
    first = removals[0]
    x, y = frame.x(now), frame.y(first.shares(first.failed)[at])
    words = f"now {_tick(now)}: {share(first.failed[at], first.of)}"
    anchor, shift = ("start", 5) if x < (frame.left + frame.right) / 2 else ("end", -5)
    parts += [
        element("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="now"),
        element("circle", element("title", words), cx=x, cy=y, r=3.5, class_="dot"),
        text(x + shift, frame.top + 8, words, "mark", anchor),
    ]
    return figure(frame.height, label, *parts, width=frame.width)


def round_numbers(low: float, high: float, log: bool) -> list[float]:
    """Up to five round numbers inside [low, high]: multiples of one step, or powers of ten."""
    if log:
        powers = [10.0**p for p in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        if len(powers) >= 2:
            return powers[:: math.ceil(len(powers) / 5)]
    step = nice((high - low) / 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def _tick(value: float) -> str:
    return short(value) if abs(value) >= 1000 else f"{value:.3g}"
