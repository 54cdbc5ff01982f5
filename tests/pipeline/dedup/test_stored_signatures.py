"""Stored signatures: back into datasketch, queried there, and refused where they mean something else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash, MinHashLSH

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.signatures import load_signatures, signatures_table, to_datasketch
from corpusmill.pipeline.engine.publish import parse_table, publish_table
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.text.reference import HARD, shingles_of

PARAMS = DedupParams()
RANDOM = random.Random(5)
TEXTS = [" ".join(f"w{RANDOM.randrange(5000)}" for _ in range(200)) for _ in range(30)]
NEAR = [text.replace(text.split()[100], "other", 1) for text in TEXTS]


def table(texts: list[str], params: DedupParams, used: int) -> pa.Table:
    signed = Shingling(params, used).sign(pa.array(texts, pa.large_string()), np.arange(len(texts)))
    ids = pa.array([i.to_bytes(16, "big") for i in range(len(texts))], pa.binary(16))
    return signatures_table(ids, signed.signatures, params)


@pytest.mark.parametrize("shingle", ["word", "char"])
@pytest.mark.parametrize("used", [112, 91])
def test_stored_signatures_are_queried_in_datasketch(tmp_path: Path, shingle: str, used: int) -> None:
    params = DedupParams.model_validate({"shingle": shingle})
    for part in (0, 1):
        half = table(TEXTS, params, used).slice(15 * part, 15)
        publish_table(Folder(tmp_path), f"signatures/part-{part}.parquet", half)
    stored = load_signatures(Folder(tmp_path) / "signatures", params)
    assert [int.from_bytes(doc_id.as_py(), "big") for doc_id in stored.doc_ids] == list(range(30))
    index = MinHashLSH(threshold=0.7, num_perm=used)
    for name, row in enumerate(stored.signatures):
        index.insert(name, to_datasketch(row, params))
    queries = load_signatures(table(NEAR, params, used), params).signatures
    found = [index.query(to_datasketch(row, params)) for row in queries]
    assert found == [[name] for name in range(30)]


def test_a_file_alone_and_the_form_of_the_table(tmp_path: Path) -> None:
    whole = table(TEXTS, PARAMS, 112)
    assert whole.schema.field("doc_id").type == pa.binary(16)
    assert whole.schema.field("signature").type == pa.list_(pa.uint32(), 112)
    publish_table(Folder(tmp_path), "some.parquet", whole)
    again = parse_table((tmp_path / "some.parquet").read_bytes())
    assert again.schema.metadata[b"scheme"] == b"affine32"
    assert again.schema.metadata[b"num_perm"] == b"112"
    np.testing.assert_array_equal(
        load_signatures(tmp_path / "some.parquet", PARAMS).signatures,
        load_signatures(again, PARAMS).signatures,
    )


@pytest.mark.parametrize("used", [112, 40])
def test_they_equal_what_datasketch_makes_of_the_shingles(used: int) -> None:
    for text, row in zip(HARD, load_signatures(table(HARD, PARAMS, used), PARAMS).signatures, strict=True):
        ours = to_datasketch(row, PARAMS)
        theirs = MinHash(num_perm=112, seed=1, scheme="affine32", hashfunc=lambda value: value)
        theirs.update_batch([h >> 32 for h in shingles_of(text, 5)])
        np.testing.assert_array_equal(ours.hashvalues, theirs.hashvalues[:used])
        more = MinHash(
            num_perm=used, permutations=ours.permutations, scheme="affine32", hashfunc=lambda value: value
        )
        more.update_batch([h >> 32 for h in shingles_of(text, 5)])
        assert ours.jaccard(more) == 1.0


@pytest.mark.parametrize(
    "other",
    [{"seed": 2}, {"ngram": 4}, {"shingle": "char"}, {"preset": "datatrove"}, {"num_perm": 128}],
)
def test_other_parameters_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(UserError, match="stored signatures have"):
        load_signatures(table(TEXTS, PARAMS, 112), DedupParams.model_validate(other))


def test_datatroves_are_stored_and_not_taken_for_datasketchs() -> None:
    params = DedupParams(preset="datatrove")
    stored = load_signatures(table(TEXTS, params, 112), params)
    assert stored.signatures.dtype == np.uint64
    with pytest.raises(UserError, match="datasketch"):
        to_datasketch(stored.signatures[0], params)


def test_what_is_no_table_of_signatures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table of signatures"):
        load_signatures(pa.table({"doc_id": [b"x" * 16]}), PARAMS)
    with pytest.raises(UserError, match="store_signatures"):
        load_signatures(tmp_path, PARAMS)
    for used in (112, 96):
        publish_table(Folder(tmp_path), f"{used}.parquet", table(TEXTS, PARAMS, used))
    with pytest.raises(UserError, match="compared"):
        load_signatures(tmp_path, PARAMS)


def test_an_empty_table(tmp_path: Path) -> None:
    publish_table(Folder(tmp_path), "empty.parquet", table([], PARAMS, 112))
    assert load_signatures(tmp_path, PARAMS).signatures.shape == (0, 112)
