"""Conversations whose turns an edit broke are quarantined; all others pass as they are."""

from __future__ import annotations

import pyarrow as pa

from corpusmill.pipeline.engine.stage import Outcome, check_conservation, decisions, with_texts
from corpusmill.pipeline.engine.whole_turns import whole_turns
from corpusmill.pipeline.text.turns import Turn, text_of
from corpusmill.schemas.tables import DECISIONS
from tests.pipeline.corpus import documents


def talk(answer: str) -> str:
    return text_of([Turn("user", "Hello?"), Turn("assistant", answer)])


def test_a_broken_one_goes_with_its_reason() -> None:
    docs = documents([talk("a"), talk("b"), talk("c"), "never was one"])
    ids = docs["doc_id"].to_pylist()
    changed = with_texts(docs, {0: talk("changed"), 2: talk("c").replace("␞2/2 assistant", "<SECRET>")})
    edits = [{"stage": "redact", "kind": "secret", "offset": 3, "length": 1, "written": 1}]
    made = decisions(
        [{"doc_id": ids[n], "outcome": "kept", "stage": "redact", "edits": edits} for n in (0, 2)]
    )
    outcome = whole_turns(docs, Outcome(changed, made, None, {"edited": 2}), "redact")
    assert check_conservation("here", 4, outcome) == (0, 1)
    # What did not change is not looked at.
    assert outcome.kept["doc_id"].to_pylist() == [ids[0], ids[1], ids[3]]
    assert outcome.decisions.schema == DECISIONS
    (gone,) = outcome.decisions.filter(
        pa.compute.equal(outcome.decisions["outcome"], "quarantined")
    ).to_pylist()
    assert (gone["doc_id"], gone["rule"]) == (ids[2], "redact.broken_turns")
    assert gone["detail"] == "1 of 2 turns are there"
    assert outcome.counters == {"edited": 2, "quarantined/redact.broken_turns": 1}


def test_nothing_broken_is_the_same_outcome() -> None:
    docs = documents([talk("a"), talk("b")])
    outcome = Outcome(with_texts(docs, {1: talk("c")}), DECISIONS.empty_table())
    assert whole_turns(docs, outcome, "redact") is outcome
