"""Notes on a choice for the user: one line each, and none if all is well."""

from __future__ import annotations

import pytest

from corpusmill.pipeline.split.choose import choose, notes
from corpusmill.schemas.split import SplitParams
from tests.pipeline.split.made import Row, components_of_rows

MANY: list[Row] = [("web", i, "", 10) for i in range(100)]


def notes_of(rows: list[Row], **params: object) -> list[str]:
    wanted = SplitParams.model_validate(params)
    made = components_of_rows(rows)
    return notes(choose(made, {name: wanted.target(name) for name in made.names}, 0), wanted)


@pytest.mark.parametrize(
    ("rows", "params", "expected"),
    [
        (MANY, {}, []),
        (MANY, {"validation_share": 0.0}, []),
        (
            [("one", 1, "", 10), ("one", 1, "", 10)], {},
            ["one: no validation: all of it is one component, which cannot be parted"],
        ),
        (
            [*MANY, ("other", 1, "", 10)], {},
            ["other: no validation: all of it is one component, which cannot be parted"],
        ),
        (
            MANY, {"validation_tokens": 200},
            ["web: validation has 500 bytes in 50 groups; wanted were 800 in 1 or more; of the components looked at"
             " 50 would take more than half of a source"],
        ),
        (
            [("held", 1, "", 10), ("web", 1, "", 10)], {"per_source": {"held": {"only": "validation"}, "web": {"only": "train"}}},
            ["held: 1 document stays in train although it is validation alone; of the components looked at 1 would"
             " leave a source no train"],
        ),
        (
            [("held", 1, "", 10), ("web", 1, "", 10), ("web", 2, "", 90)],
            {"per_source": {"held": {"only": "validation"}, "web": {"only": "train"}}},
            ["web: 1 document is validation although it is train alone: it hangs together with a source that is"
             " validation alone"],
        ),
        (
            [("held", 1, "", 10), ("web", 1, "", 30), ("web", 2, "", 70)], {"per_source": {"held": {"only": "validation"}}},
            ["web: validation has 30 % of the text, wanted were 2 %: it comes in few large components, or hangs together"
             " with other sources' validation"],
        ),
        (
            [("web", i, "a.org" if i < 40 else "", 10) for i in range(100)], {},
            ["40 documents, 40 % of the text, hang together by host and duplicate cluster and are never parted: a.org"],
        ),
        (
            [("web", i % 20, f"{i % 7}.org", 10) for i in range(100)] + [("web", 99, "", 50)], {"min_documents": 0},
            ["100 documents, 95.2 % of the text, hang together by host and duplicate cluster and are never parted:"
             " 0.org, 1.org, 2.org and 4 more hosts"],
        ),
    ],
)  # fmt: skip
def test_lines(rows: list[Row], params: dict[str, object], expected: list[str]) -> None:
    assert notes_of(rows, **params) == expected
