"""The corpus of the benches: the same bytes for any cut, whole characters, and the copies that it states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import corpus, natural
from bench.labelled import jaccard, shingles
from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.schemas.tables import DOCUMENTS

pytestmark = pytest.mark.skipif(not natural.available(), reason="the real text (../shared/data) is not here")


def test_a_document_does_not_depend_on_its_neighbours() -> None:
    rows = corpus.plan(500, 600)
    whole = corpus.texts(rows)
    whole.validate(full=True)  # UTF-8 too
    assert corpus.texts(rows[200:230]).equals(whole[200:230])
    assert 500 < sum(map(len, whole.to_pylist())) / 500 < 700


def test_copies_are_as_alike_as_their_kind() -> None:
    rows = corpus.plan(4_000, 3_000)
    texts = corpus.texts(rows)
    counts = np.bincount(rows["base"].astype(np.int64) - 2**40)
    seen: dict[float, list[float]] = {}
    for base in np.flatnonzero(counts > 1):
        same = np.flatnonzero(rows["base"].astype(np.int64) - 2**40 == base)
        first = next((i for i in same if rows["rate"][i] == 0 and rows["inserted"][i] == 0), None)
        for other in same:
            if first is not None and other != first and rows["inserted"][other] == 0:
                alike = jaccard(shingles(texts[int(first)].as_py()), shingles(texts[int(other)].as_py()))
                seen.setdefault(float(rows["rate"][other]), []).append(alike)
    medians = {rate: float(np.median(alike)) for rate, alike in seen.items()}
    assert medians[0.0] == 1
    assert 0.85 < medians[0.01] < 0.95
    assert 0.5 < medians[0.05] < 0.75
    assert medians[0.3] < 0.2


def test_partitions_are_those_that_ingest_would_publish(tmp_path: Path) -> None:
    made = corpus.write(Folder(str(tmp_path)), 300, 600)
    assert [part.rows for part in made.partitions] == [300]
    table = made.partitions[0].read()
    assert table.schema == DOCUMENTS
    row = table.slice(7, 1).to_pylist()[0]
    assert row["doc_id"] == doc_id(row["source"], row["locator"])
    assert row["text_hash"] == text_hash(row["text"])
    assert made.text_bytes == sum(len(text.encode()) for text in table["text"].to_pylist())
    assert set(table["source"].to_pylist()) <= set(made.sources)
