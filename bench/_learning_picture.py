"""The picture of `bench.learning`: bits per byte against seconds of training as an SVG file that stands alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from corpusmill.common.charts import Frame, element, path, round_numbers, text, tick

Curve = Sequence[tuple[float, float]]
COLOURS = ("#1864ab", "#e8590c", "#2b8a3e", "#862e9c", "#c92a2a", "#5c940d")
WIDTH, HEIGHT, ROW = 780, 380, 20  # of the plot with its axes; of a line of the key
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222}.tick{font-size:12px;fill:#555}.axis{font-size:12px;fill:#555}
.grid-line{stroke:#ccc;stroke-width:.6}.seed{fill:none;stroke-width:1;opacity:.35}.mean{fill:none;stroke-width:2.2}
.ngram{stroke:#666;stroke-dasharray:5 4;stroke-width:1.1}.paper{fill:#fff}
"""


def picture(curves: Mapping[str, Sequence[Curve]], levels: Mapping[str, float]) -> str:
    """`curves`: of each model one curve a seed, (seconds, bits per byte); `levels`: of models that take no time."""
    names = [name.replace("`", "") for name in curves]
    every = [point for runs in curves.values() for run in runs for point in run]
    lows = [*levels.values(), *(y for _, y in every)]
    low, high = min(lows), max(lows)
    margin = (high - low) * 0.06 or 0.1
    frame = Frame(
        0, max(x for x, _ in every), high + margin, HEIGHT, width=WIDTH, left=56, top=24, y_low=low - margin, margin=190
    )  # fmt: skip
    whole = HEIGHT + ROW * (len(names) + 1)
    ticks = [(value, tick(value)) for value in round_numbers(0, frame.x_high, False)]
    parts = [element("rect", width=WIDTH, height=whole, class_="paper")]
    parts += frame.axes(ticks, "{:.2f}".format, "seconds of training", 4)
    parts.append(text(frame.left, frame.top - 8, "bits per byte, all validation tokens", "axis"))
    taken: list[float] = []
    for name, level in sorted(levels.items(), key=lambda pair: pair[1]):
        y = frame.y(level)
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="ngram"))
        place = y + 4 if not taken else min(y + 4, taken[-1] - 13)  # labels do not cover each other
        taken.append(place)
        parts.append(text(frame.right + 5, place, name, "tick"))
    for number, runs in enumerate(curves.values()):
        colour = COLOURS[number % len(COLOURS)]
        for run in runs:
            parts.append(_line(frame, run, "seed", colour))
        mean = [
            (statistics.fmean(x for x, _ in column), statistics.fmean(y for _, y in column))
            for column in zip(*runs, strict=False)
        ]
        parts.append(_line(frame, mean, "mean", colour))
    for number, name in enumerate(names):
        y, colour = HEIGHT + ROW * (number + 0.8), COLOURS[number % len(COLOURS)]
        parts.append(element("path", d=f"M{frame.left},{y}h24", class_="mean", stroke=colour))
        parts.append(text(frame.left + 32, y + 4, name))
    return str(
        element(
            "svg", element("title", "Bits per byte against seconds of training"), element("style", Markup(STYLE)), *parts,
            xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {whole}", role="img",
        )
    )  # fmt: skip


def _line(frame: Frame, points: Curve, kind: str, colour: str) -> Markup:
    return element("path", d=path([(frame.x(x), frame.y(y)) for x, y in points]), class_=kind, stroke=colour)
