"""The S-curve of the LSH: theory as a line, what was measured as marks with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from corpusmill.pipeline.report.svg import Frame, element, figure, path, text
from corpusmill.pipeline.report.words import number, share

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
