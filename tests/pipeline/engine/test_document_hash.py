"""Hashes of ids and the mask of the validation split."""

from __future__ import annotations

import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.ids import doc_id
from corpusmill.pipeline.engine.document_hash import hash_ids, purpose_seed, split_of
from corpusmill.schemas.tables import ID
from tests.pipeline.corpus import documents


@given(
    st.lists(st.binary(min_size=16, max_size=16), max_size=50), st.integers(0, 2**64 - 1), st.integers(0, 5)
)
def test_the_batch_hash_is_xxh3_64(ids: list[bytes], seed: int, skipped: int) -> None:
    array = pa.array(ids, ID).slice(min(skipped, len(ids)))
    expected = [xxhash.xxh3_64_intdigest(i, seed=seed) for i in ids[skipped:]]
    assert hash_ids(array, seed).tolist() == expected
    assert hash_ids(pa.chunked_array([array.slice(0, 2), array.slice(2)], ID), seed).tolist() == expected


def test_purposes_have_seeds_of_their_own() -> None:
    seeds = {
        purpose_seed(seed, purpose) for seed in (0, 1, 2**62) for purpose in ("split", "tokenizer", "shard")
    }
    assert len(seeds) == 9


def test_a_cluster_decides_for_its_documents_and_an_id_for_a_lone_one() -> None:
    docs = documents(["a", "b", "c", "d"], clusters={0: "x", 2: "x", 3: "y"})
    groups = pa.array([doc_id("cluster", "x"), doc_id("web", "a#1")], ID)
    assert split_of(docs, groups).tolist() == [True, True, True, False]
    # A clustered document's own id says nothing.
    assert split_of(docs, pa.array([doc_id("web", "a#0")], ID)).tolist() == [False] * 4
    assert split_of(docs.slice(0, 0), groups).tolist() == []
