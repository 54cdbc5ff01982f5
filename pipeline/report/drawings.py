"""The report's own charts: the flow of documents through the stages, a rule's removals by its threshold, and the
S-curve of the LSH. Pure functions from numbers to SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from corpusmill.common.charts import (
    WIDTH,
    Frame,
    coordinate,
    element,
    figure,
    nice,
    path,
    round_numbers,
    text,
    tick,
)
from corpusmill.common.format import number, share


@dataclass(frozen=True)
class Step:
    """One stage of a flow: what leaves it to the side, and what goes on, in one unit."""

    name: str
    removed: float
    quarantined: float
    goes_on: float
    lines: tuple[str, ...] = ()  # beside the branch


TRUNK = 118.0
LEFT = 6.0
BRANCH = LEFT + TRUNK + 34  # where branches end and their labels begin


def flow(start: float, head: Sequence[str], steps: Sequence[Step], foot: Sequence[str], label: str) -> Markup:
    """A stream from top to bottom that narrows as branches leave it to the right; widths are true to scale.

    Each step's lines give its numbers in words. Without input nothing is drawn.
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
    a, b = coordinate(right), coordinate(right - thick)
    top, low, start = coordinate(bend), coordinate(bend + thick), coordinate(y)
    return (
        f"M{a},{start}C{a},{top} {a},{top} {coordinate(BRANCH)},{top}L{coordinate(BRANCH)},{low}"
        f"C{b},{low} {b},{low} {b},{start}Z"
    )


def _lines(x: float, y: float, lines: Sequence[str], first: str = "f-name") -> list[Markup]:
    return [text(x, y + 16 * i, line, first if i == 0 else "f-text") for i, line in enumerate(lines)]


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
    marked, with the share that the first of `removals` removes there."""
    at = list(grid).index(now)
    top = max([0.001, *(n for one in removals for n in one.shares(one.failed))])
    frame = Frame(grid[0] if not log else max(grid[0], 1e-9), grid[-1], min(1.0, nice(top)), 170, log, 290)
    ticks = [(v, tick(v)) for v in round_numbers(frame.x_low, frame.x_high, log)]
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
    words = f"now {tick(now)}: {share(first.failed[at], first.of)}"
    anchor, shift = ("start", 5) if x < (frame.left + frame.right) / 2 else ("end", -5)
    parts += [
        element("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="now"),
        element("circle", element("title", words), cx=x, cy=y, r=3.5, class_="dot"),
        text(x + shift, frame.top + 8, words, "mark", anchor),
    ]
    return figure(frame.height, label, *parts, width=frame.width)


Points = Sequence[dict[str, Any]]
APART = 3.0  # px to either side, so that the intervals of one bin do not hide each other
CAP = 2.2  # px, half the bar at the end of an interval


def s_curve(
    theory: Sequence[Sequence[float]], sample: Points, planted: Points, similarity: float | None,
    promised: float | None, label: str,
) -> Markup:  # fmt: skip
    """Probability that a pair is found, by its similarity.

    Pairs of the sample are dots, planted copies diamonds, each at the mean similarity of its bin with its 95
    % interval. The similarity from which on documents are removed and the recall promised there are marked.
    """
    frame = Frame(0, 1, 1.0, height=250, top=30)
    parts = frame.axes(
        [(v / 5, f"{v / 5:g}") for v in range(6)],
        lambda v: f"{100 * v:.0f} %",
        "Jaccard similarity of a pair",
    )
    if similarity is not None:
        x = frame.x(similarity)
        parts.append(element("line", x1=x, x2=x, y1=frame.top - 6, y2=frame.bottom, class_="now"))
        end = "end" if similarity > 0.5 else "start"
        parts.append(
            text(min(x + 4, frame.right), frame.top - 12, f"removed from {similarity:g} on", "mark", end)
        )
    if promised is not None:
        y = frame.y(promised)
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="now"))
        parts.append(text(frame.left + 5, y + 14, f"{share(promised, 1)} promised there", "mark"))
    if theory:
        parts.append(
            element("path", d=path([(frame.x(x), frame.y(y)) for x, y in theory]), class_="l-theory")
        )
    both = bool(sample) and bool(planted)
    parts += [_mark(frame, point, "pairs of the sample", "dot", -APART if both else 0) for point in sample]
    parts += [_mark(frame, point, "planted copies", "planted", APART if both else 0) for point in planted]
    return figure(frame.height, label, *parts)


def _mark(frame: Frame, point: dict[str, Any], what: str, kind: str, shift: float) -> Markup:
    """One bin: its share found, with whiskers; the figures in its title."""
    found, of, low, high = (point[name] for name in ("found", "of", "low", "high"))
    # A bin begins at its Jaccard value; without a mean its mark stands in the middle of 0.05.
    at = point.get("mean")
    x = frame.x(min(at if at is not None else point["jaccard"] + 0.025, 1.0)) + shift
    y, bottom, top = (frame.y(point[name]) for name in ("value", "low", "high"))
    title = (
        f"Jaccard from {point['jaccard']:g}: {number(found)} of {number(of)} {what} found"
        f" ({share(found, of)}, 95 % interval {low:.3g} to {high:.3g})"
    )
    whisker = f"whisker {kind}"
    inside = [element("line", x1=x, x2=x, y1=bottom, y2=top, class_=whisker)]
    inside += [
        element("line", x1=x - CAP, x2=x + CAP, y1=end, y2=end, class_=whisker) for end in (bottom, top)
    ]
    if kind == "dot":
        inside.append(element("circle", cx=x, cy=y, r=3.2, class_="dot"))
    else:
        corners = [(x, y - 4), (x + 4, y), (x, y + 4), (x - 4, y)]
        inside.append(element("path", d=path(corners) + "Z", class_="planted"))
    return element("g", element("title", title), *inside)


class Spread(NamedTuple):
    """Counts of one source by bin: below all edges, in each bin, above them."""

    name: str
    counts: Sequence[int]


ALL_HIGH, ONE_HIGH, NAME_HIGH = 62.0, 15.0, 14.0  # px: histogram of all, of a source, its name above it


def distribution(
    edges: Sequence[float], log: bool, every: Sequence[int], kept: Sequence[int], sources: Sequence[Spread],
    marks: Sequence[tuple[float, str]], label: str,
) -> Markup:  # fmt: skip
    """A histogram of all documents with those kept over it, one of each source below, and vertical lines at `marks`.

    Heights are square roots of the counts, so that a bin of few documents is seen beside one of most; each source has its
    own scale. What lies outside the edges is drawn in the bins at the ends.
    """
    named = list(dict.fromkeys(marks))[:4]
    top = 6.0 + 12 * len(named)
    below = top + ALL_HIGH
    height = below + len(sources) * (NAME_HIGH + ONE_HIGH) + 34
    frame = Frame(max(edges[0], 1e-9) if log else edges[0], edges[-1], 1, height, log, 290, 8, top, margin=8)
    most = max([1, *_folded(every)])
    title = f"{number(sum(every))} documents, {number(sum(kept))} of them kept"
    parts = [
        element("path", element("title", title), d=_steps(frame, edges, every, most, below, ALL_HIGH), class_="c-all"),
        element("path", d=_steps(frame, edges, kept, most, below, ALL_HIGH), class_="c-kept"),
    ]  # fmt: skip
    base = below
    for one in sources:
        base += NAME_HIGH + ONE_HIGH
        shape = _steps(frame, edges, one.counts, max([1, *_folded(one.counts)]), base, ONE_HIGH)
        title = f"{one.name}: {number(sum(one.counts))} documents"
        parts.append(text(frame.left, base - ONE_HIGH - 3, one.name, "tick"))
        parts.append(element("path", element("title", title), d=shape, class_="c-all"))
    parts.append(element("line", x1=frame.left, x2=frame.right, y1=base, y2=base, class_="grid-line"))
    for value in round_numbers(frame.x_low, frame.x_high, log):
        place = min(max(frame.x(value), frame.left + 10), frame.right - 10)
        parts.append(text(place, base + 14, tick(value), "tick", "middle"))
    for row, (value, words) in enumerate(named):
        x = frame.x(value)
        anchor, shift = ("start", 4) if x < (frame.left + frame.right) / 2 else ("end", -4)
        parts.append(element("line", x1=x, x2=x, y1=4 + 12 * row, y2=base, class_="now"))
        parts.append(text(x + shift, 13 + 12 * row, words, "mark", anchor))
    return figure(base + 20, label, *parts, width=frame.width)


def _folded(counts: Sequence[int]) -> list[int]:
    """Counts by bin, with what lies outside in the bins at the ends."""
    inside = list(counts[1:-1])
    inside[0] += counts[0]
    inside[-1] += counts[-1]
    return inside


def _steps(
    frame: Frame, edges: Sequence[float], counts: Sequence[int], most: int, base: float, high: float
) -> str:
    """The `d` of a histogram that stands on `base`; equal neighbours are one step."""
    drawn = [f"M{coordinate(frame.x(edges[0]))},{coordinate(base)}"]
    level = coordinate(base)
    for count, (_, end) in zip(_folded(counts), pairwise(edges), strict=True):
        y = coordinate(base - high * (count / most) ** 0.5)
        x = coordinate(frame.x(end))
        if y == level and drawn[-1].startswith("H"):
            drawn[-1] = f"H{x}"
        else:
            drawn += [f"V{y}", f"H{x}"]
        level = y
    return "".join([*drawn, f"V{coordinate(base)}Z"])
