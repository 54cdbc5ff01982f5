"""What an ablation found: ablation.json, a table, and a page with the differences and their intervals side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corpusmill.common.charts import element, figure, page, text
from corpusmill.common.format import short

if TYPE_CHECKING:
    from markupsafe import Markup

    from corpusmill.schemas.ablation import Ablation, AblationArm, ArmDifference

FILE, PAGE = "ablation.json", "ablation.html"
ROW, LEFT, WIDTH = 26.0, 250.0, 760.0
WORDS = (
    "Bits per byte of the held-out text under trigrams counted in each arm's text: a first answer, which wants distinct text more than"
    " a network does. Thick: interval of 95 % from the documents drawn; thin: with the documents scored. Grey: the whole recipe"
    " against other draws of itself, where no difference is."
)


def table(found: Ablation) -> list[list[str]]:
    """Heading and rows."""
    head = [
        "arm",
        "documents",
        "tokens",
        "bits/byte",
        "difference",
        "95 %",
        "p",
        "is",
        "CPU s",
        "bits/byte per CPU hour",
    ]
    return [head, *(_row(arm) for arm in found.arms)]


def by_set(found: Ablation) -> list[list[str]]:
    """Heading and rows: the difference of each arm on each held-out text, in brackets where it is unclear."""
    rows = [
        [arm.name, *(_short(arm.differences.get(name)) for name in found.held_out)] for arm in found.arms[1:]
    ]
    return [["arm", *found.held_out], *rows]


def _short(d: ArmDifference | None) -> str:
    if d is None:
        return ""
    return f"({d.value:+.4f})" if d.verdict == "unclear" else f"{d.value:+.4f}"


def _row(arm: AblationArm) -> list[str]:
    start = [arm.name, f"{arm.documents:,}", short(arm.tokens), f"{arm.bits_per_byte:.4f}"]
    d, seconds = arm.difference, arm.cpu_seconds
    if d is None:
        return [*start, "", "", "", "", "", ""]
    cost = "" if seconds is None else f"{seconds:.1f}"
    bought = f"{d.value / seconds * 3600:+.2f}" if seconds and d.verdict in ("worse", "better") else ""
    return [
        *start,
        f"{d.value:+.4f}",
        f"{d.low:+.4f} to {d.high:+.4f}",
        f"{d.p:.3f}",
        d.verdict,
        cost,
        bought,
    ]


def as_page(found: Ablation) -> str:
    """HTML that loads nothing."""
    charts = [forest(found)]
    if len(found.held_out) > 1:
        head, *rows = by_set(found)
        lines = [element("tr", *(element("th", cell) for cell in head))]
        lines += [element("tr", *(element("td", cell) for cell in row)) for row in rows]
        charts += [
            element("h2", "By held-out text"),
            element("div", element("table", *lines)),
            element("h2", "All together"),
        ]
    return page("What each arm changes", WORDS, charts, table(found))


def forest(found: Ablation) -> Markup:
    """A row for each arm: its difference and both intervals over one axis, the control's as a band."""
    rows = [(arm.name, arm.difference) for arm in found.arms if arm.difference is not None]
    ends = [0.0, *(end for _, d in rows for end in (d.low, d.high))]
    low, high = min(ends), max(ends)
    span = (high - low) * 1.1 or 1.0
    start = (low + high - span) / 2

    def x(value: float) -> float:
        return LEFT + (value - start) / span * (WIDTH - LEFT - 20)

    bottom = 30 + ROW * len(rows)
    control = rows[0][1]
    parts = [
        element(
            "rect",
            x=x(control.low),
            y=20,
            width=x(control.high) - x(control.low),
            height=bottom - 20,
            class_="band",
        ),
        element("line", x1=x(0), x2=x(0), y1=20, y2=bottom, class_="mark"),
        text(LEFT, 14, "better without"),
        text(WIDTH - 20, 14, "worse without", anchor="end"),
    ]
    for at, (name, d) in enumerate(rows):
        y = 34 + ROW * at
        half = (d.high - d.low) / 2 * d.draws / (math.hypot(d.draws, d.documents) or 1.0)
        parts += [
            text(LEFT - 12, y + 4, name, anchor="end"),
            element("line", x1=x(d.low), x2=x(d.high), y1=y, y2=y, class_="line faint"),
            element("line", x1=x(d.value - half), x2=x(d.value + half), y1=y, y2=y, class_="line"),
            element(
                "circle",
                element("title", f"{name}: {d.value:+.4f} ({d.low:+.4f} to {d.high:+.4f})"),
                cx=x(d.value),
                cy=y,
                r=4,
                class_="dot",
            ),
        ]
    ticks = [start + span * share for share in (0.05, 0.5, 0.95)]
    parts += [text(x(value), bottom + 14, f"{value:+.3f}", anchor="middle") for value in ticks]
    parts.append(
        text(
            (LEFT + WIDTH) / 2, bottom + 32, "bits per byte, less those of the whole recipe", anchor="middle"
        )
    )
    return figure(bottom + 40, "differences of the arms", *parts, width=WIDTH)
