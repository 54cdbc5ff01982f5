"""The answer of `compare` as one HTML page that loads nothing, in the style of the report."""

from __future__ import annotations

from typing import Any, Final

from corpusmill.common.format import head
from corpusmill.pipeline.inspect.compare.join import ABSENT
from corpusmill.pipeline.inspect.compare.words import fate
from corpusmill.pipeline.inspect.what_if.question import shown
from corpusmill.pipeline.report.page import environment
from corpusmill.schemas.tables import OUTCOMES

ROWS: Final = 60  # of a table; the rest is counted
NAME: Final = 120  # characters of a name or a value
Answer = dict[str, Any]


def render(answer: Answer) -> str:
    """The page. Equal answers give equal bytes; its size does not grow with the number of sources, rules or keys."""
    jinja = environment("corpusmill.pipeline.inspect.compare")
    jinja.filters.update(
        fate=fate, value=lambda value: head(shown(value), NAME), clip=lambda text: head(text, NAME)
    )
    changed = [row for row in answer["rules"] if row["change"] or row["took"] or row["gave_back"]]
    page = jinja.get_template("compare.html.j2").render(
        c=answer, names=(*OUTCOMES, ABSENT), rules=changed, most=ROWS, sides=("a", "b")
    )
    return page if page.endswith("\n") else page + "\n"
