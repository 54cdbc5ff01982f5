"""A curriculum over the signals that a run of the pipeline stored, found where the run left them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.data.curriculum import Curriculum, stored
from corpusmill.train.data.stream import StreamingTokens

SIGNAL = "gopher.word_count"


def test_a_run_orders_its_texts_by_what_its_filter_measured(finished: Path) -> None:
    curriculum = {"signal": SIGNAL, "over": 4, "start": 0.05, "pacing": "linear"}
    with StreamingTokens(
        str(finished / "shards"), sequence_length=64, global_batch=16, seed=2, curriculum=curriculum
    ) as stream:
        tables = [pq.read_table(f) for f in sorted((finished / "filter/signals").glob("*.parquet"))]
        counts = {
            one: count
            for table in tables
            for one, count in zip(table["doc_id"].to_pylist(), table[SIGNAL].to_pylist(), strict=True)
        }
        ids = np.array(sorted(counts), dtype="S16")
        assert (
            stored(Folder(finished / "filter/signals"), SIGNAL, ids) == [counts[i] for i in sorted(counts)]
        ).all()
        for source in stream.plan.sources:
            values = stream._opened.train[source.name].difficulty
            assert (
                values is not None and np.isfinite(values).all() and isinstance(source.sequences, Curriculum)
            )
            low, high = min(counts.values()), max(counts.values())
            assert (low <= values).all() and (values <= high).all() and len(np.unique(values)) > 1
        next(stream)
    with pytest.raises(UserError, match="'gopher.words' is not stored.*has: length, .*gopher.word_count"):
        StreamingTokens(str(finished / "shards"), curriculum={**curriculum, "signal": "gopher.words"})
