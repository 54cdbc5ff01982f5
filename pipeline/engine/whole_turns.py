"""After every local stage of a recipe of conversations: a text that is no conversation any more is quarantined."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.text.turns import BROKEN_TURNS, broken
from corpusmill.schemas.tables import DECISIONS, QUARANTINED


def whole_turns(docs: pa.Table, outcome: Outcome, stage: str) -> Outcome:
    """The outcome of `stage` on `docs`, without the conversations whose turns it broke (`corpusmill.pipeline.text.turns`): an edit
    took the line of a turn, or a stage of the user's own wrote another text. Only changed texts are looked at."""
    kept = outcome.kept
    changed = pc.indices_nonzero(pc.invert(pc.is_in(kept["text_hash"], docs["text_hash"].combine_chunks())))
    reasons = broken(kept["text"].take(changed))
    if not reasons:
        return outcome
    rows = pa.array([changed[at].as_py() for at in reasons], pa.int64())
    ids = kept["doc_id"].take(rows).combine_chunks()
    rule = f"{stage}.{BROKEN_TURNS}"
    gone = [
        {
            "doc_id": doc_id, "outcome": QUARANTINED, "stage": stage, "rule": rule, "detail": detail,
            "failed": [{"stage": stage, "rule": rule}],
        }
        for doc_id, detail in zip(ids.to_pylist(), reasons.values(), strict=True)
    ]  # fmt: skip
    before = outcome.decisions.filter(pc.invert(pc.is_in(outcome.decisions["doc_id"], ids)))
    return outcome._replace(
        kept=kept.filter(pc.invert(pc.is_in(kept["doc_id"], ids))),
        decisions=pa.concat_tables([before, pa.Table.from_pylist(gone, schema=DECISIONS)]).combine_chunks(),
        counters={**outcome.counters, f"{QUARANTINED}/{rule}": len(gone)},
    )
