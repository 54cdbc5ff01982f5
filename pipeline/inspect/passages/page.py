"""The answer of `passages` in words and as one HTML page that loads nothing, in the style of the report."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from corpusmill.common.escape import spelled
from corpusmill.common.format import quantity
from corpusmill.pipeline.report.page import environment

WIDTH: Final = 100  # columns of a terminal
Row = dict[str, Any]


def render(answer: Row) -> str:
    """The page. Equal answers give equal bytes."""
    jinja = environment("corpusmill.pipeline.inspect.passages")
    page = jinja.get_template("passages.html.j2").render(a=answer)
    return page if page.endswith("\n") else page + "\n"


def show(answer: Row) -> str:
    """Passage and item in two columns, one pair after the other."""
    lines = []
    for row in answer["passages"]:
        more = f" and {row['items'] - 1} more items" if row["items"] > 1 else ""
        how = "words in order" if row["near"] else "words in runs"
        lines.append(
            spelled(f"{row['doc_id']}  {row['source']}  {row['set']}#{row['item']}{more}, {row['part']}:")
        )
        lines[-1] += f" {row['words']} of {row['of']} {how} ({row['value']:.0%})"
        half = (WIDTH - 3) // 2
        left = ["passage", *_wrapped(row["passage"] or "(no text: deleted, or personal data)", half)]
        right = ["item", *_wrapped(row["text"], half)]
        size = max(len(left), len(right))
        for a, b in zip(left + [""] * (size - len(left)), right + [""] * (size - len(right)), strict=True):
            lines.append(f"{a:<{half}} | {b}".rstrip())
        lines.append("")
    left_out = answer["total"] - len(answer["passages"])
    lines.append(
        f"{quantity(answer['total'], 'passage')} found" + (f"; {left_out} not shown" if left_out else "")
    )
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(spelled(line), width) or [""]
        if line.strip()
    ]
