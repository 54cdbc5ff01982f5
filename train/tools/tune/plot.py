"""Charts as SVG in one HTML page that loads nothing: pure functions from numbers to markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 64, 610, 24, 252
STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#8888;--line:#1864ab;--bad:#c92a2a;--mark:#2b8a3e;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--line:#74c0fc;--bad:#ff8787;--mark:#8ce99a;--paper:#16181b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:52rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:var(--ink)}
.axis{stroke:var(--soft)}.line{fill:none;stroke:var(--line);stroke-width:2}.faint{stroke-width:1;opacity:.4}
.mark{stroke:var(--mark);stroke-dasharray:4 3}.dot{fill:var(--line)}.best{fill:var(--mark)}.pruned{fill:none;stroke:var(--bad)}
div{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{border-bottom:1px solid var(--soft);padding:.2rem .7rem;text-align:left}
"""


class Line(NamedTuple):
    """A curve: its name, (x, y) points, and a further class."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = ""


class Dot(NamedTuple):
    """A point: x, y (None: below all others), its class, and what the pointer reads."""

    x: float
    y: float | None
    kind: str
    title: str


class Frame:
    """Scales of a plot, x logarithmic if `log`; a span of nothing is drawn in the middle."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], log: bool, top: float | None = None) -> None:
        self.log = log and min(xs, default=0) > 0
        self.low, self.high = self._x(min(xs, default=0)), self._x(max(xs, default=1))
        self.bottom, self.top = min(ys, default=0), max(ys, default=1)
        if top is not None:
            self.top = min(self.top, top)

    def _x(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def x(self, value: float) -> float:
        return LEFT + (RIGHT - LEFT) * _share(self._x(value), self.low, self.high)

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * _share(min(value, self.top), self.bottom, self.top)

    def axes(self, x_title: str, y_title: str, names: Sequence[str] = ()) -> list[str]:
        """Both axes with five ticks each; `names` stand for the whole numbers of x."""
        parts = [f'<path class="axis" fill="none" d="M{LEFT},{TOP}V{BOTTOM}H{RIGHT}"/>']
        for i in range(5):
            y = self.bottom + (self.top - self.bottom) * i / 4
            parts.append(_text(LEFT - 6, self.y(y) + 4, f"{y:.4g}", "end"))
            x = self.low + (self.high - self.low) * i / 4
            if not names:
                parts.append(
                    _text(LEFT + (RIGHT - LEFT) * i / 4, BOTTOM + 18, f"{10**x if self.log else x:.2g}")
                )
        parts += [_text(self.x(i), BOTTOM + 18, name) for i, name in enumerate(names)]
        return [
            *parts,
            _text((LEFT + RIGHT) / 2, BOTTOM + 38, x_title),
            _text(LEFT, TOP - 10, y_title, "start"),
        ]


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def line_chart(
    lines: Sequence[Line], marks: Mapping[str, float], x_title: str, y_title: str, *, log: bool = False,
    top: float | None = None,
) -> str:  # fmt: skip
    """Curves, and named vertical lines at `marks`; values above `top` are drawn at it."""
    points = [point for line in lines for point in line.points]
    frame = Frame([x for x, _ in points], [y for _, y in points], log, top)
    parts = frame.axes(x_title, y_title)
    for line in lines:
        path = "L".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in line.points)
        if path:
            parts.append(
                f'<path class="line {line.kind}" d="M{path}"><title>{escape(line.name)}</title></path>'
            )
    for number, (name, x) in enumerate(marks.items()):
        at = min(max(frame.x(x), LEFT), RIGHT)
        parts.append(f'<path class="mark" d="M{at:.1f},{TOP}V{BOTTOM}"/>')
        parts.append(_text(at + 4, TOP + 14 * (number + 1), f"{name} {x:.2e}", "start"))
    return _svg(y_title, parts)


def scatter(
    dots: Sequence[Dot], x_title: str, y_title: str, names: Sequence[str] = (), log: bool = False
) -> str:
    """Dots, those without a value below the axis' lowest; with `names`, x counts them."""
    xs = [-0.5, len(names) - 0.5] if names else [dot.x for dot in dots]
    frame = Frame(xs, [dot.y for dot in dots if dot.y is not None], log)
    margin = (frame.top - frame.bottom) / 12
    frame.bottom, frame.top = frame.bottom - margin, frame.top + margin
    parts = frame.axes(x_title, y_title, names)
    for dot in sorted(dots, key=lambda dot: dot.kind == "best"):
        y = BOTTOM - 4 if dot.y is None else frame.y(dot.y)
        parts.append(
            f'<circle class="{dot.kind}" cx="{frame.x(dot.x):.1f}" cy="{y:.1f}" r="4.5">'
            f"<title>{escape(dot.title)}</title></circle>"
        )
    return _svg(f"{y_title} by {x_title}", parts)


def page(title: str, words: str, charts: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One page: a heading, a sentence, charts, and a table whose first row is its heading."""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width,initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(words)}</p>{''.join(charts)}"
        f"<div><table>{''.join(lines)}</table></div></body></html>\n"
    )
