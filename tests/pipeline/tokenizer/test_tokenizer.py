"""Training on the train split alone, deterministic, with every text coming back as it was."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.hugging_face import token_bytes
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode
from corpusmill.pipeline.bpe.load import Bpe, decode, load_bpe
from corpusmill.pipeline.engine.document_hash import read_validation_groups, split_of
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.split.stage import Split
from corpusmill.pipeline.tokenizer.sample import draw
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.conftest import IMPORT_PATH
from tests.pipeline.corpus import Here, contents, context, documents, partitions, recipe, words

SIZE = {"vocab_size": 400}


def corpus() -> pa.Table:
    web = documents([words(60 + i % 50, i) for i in range(200)], "web")
    code = documents([f"def f{i}(x):\n\treturn x + {i}\n" * (i % 5 + 1) for i in range(80)], "code")
    return pa.concat_tables([web, code, documents(["only one document\n"], "lone")])


def prepared(
    tmp: Path, docs: pa.Table, parts: int = 3, shuffle: int | None = None, **params: Any
) -> tuple[Recipe, Context]:
    made = recipe(["web", "code", "lone"], split={"validation_share": 0.1}, tokenizer={**SIZE, **params})
    published = partitions(Folder(tmp / "redact"), docs, parts, shuffle)
    Split(made).run(context(Folder(tmp), made, "split", published))
    return made, context(Folder(tmp), made, "tokenizer", published, Here(reverse=bool(shuffle)))


def build(
    tmp: Path, docs: pa.Table, parts: int = 3, shuffle: int | None = None, **params: Any
) -> dict[str, bytes]:
    made, here = prepared(tmp, docs, parts, shuffle, **params)
    Tokenizer(made).run(here)
    return contents(tmp / "tokenizer")


@pytest.fixture(scope="module")
def small() -> Bpe:
    data = train(corpus()["text"], TokenizerParams(vocab_size=400))
    return load_bpe(data, "<|endoftext|>", "test")


def test_partitions_and_task_order_change_no_byte(tmp_path: Path) -> None:
    docs = corpus()
    first = build(tmp_path / "1", docs, 1)
    assert set(first) == {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "stats.json",
    }  # fmt: skip
    assert build(tmp_path / "2", docs, 2) == first
    assert build(tmp_path / "7", docs, 7, shuffle=3) == first


def test_a_sample_is_the_same_for_any_partitions(tmp_path: Path) -> None:
    docs = corpus()
    first = build(tmp_path / "1", docs, 1, sample_mb=0.01)
    stats = json.loads(first["stats.json"])["trained_on"]
    assert 0 < stats["bytes"] <= 0.01 * 2**20 and stats["docs"] < 281
    assert build(tmp_path / "7", docs, 7, shuffle=3, sample_mb=0.01) == first
    assert build(tmp_path / "all", docs, 2)["tokenizer.json"] != first["tokenizer.json"]


def test_validation_is_not_trained_on(tmp_path: Path) -> None:
    docs = corpus()
    _, here = prepared(tmp_path, docs)
    train_side = docs.filter(pa.array(~split_of(docs, read_validation_groups(Folder(tmp_path / "split")))))
    splits = json.loads((tmp_path / "split/split.json").read_text())["sources"]
    texts = [text for table in draw(here, 10**9, splits, "k").tables() for text in table["text"].to_pylist()]
    assert sorted(texts) == sorted(train_side["text"].to_pylist())
    assert len(texts) < len(docs)


def test_threads_and_hash_seed_change_no_byte(tmp_path: Path) -> None:
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps(corpus()["text"].to_pylist()))
    program = (
        "import json, sys, hashlib, pyarrow as pa\n"
        "from corpusmill.pipeline.tokenizer.train import train\nfrom corpusmill.schemas.tokenizer import TokenizerParams\n"
        f"texts = pa.chunked_array([json.load(open({str(texts)!r}))], pa.large_string())\n"
        "print(hashlib.sha256(train(texts, TokenizerParams(vocab_size=500))).hexdigest())"
    )
    digests = set()
    for seed, threads in (("0", "false"), ("7", "true"), ("123", "true")):
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "TOKENIZERS_PARALLELISM": threads,
            "PYTHONPATH": IMPORT_PATH,
        }
        digests.add(
            subprocess.run(
                [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
            ).stdout
        )
    here = hashlib.sha256(train(corpus()["text"], TokenizerParams(vocab_size=500))).hexdigest()
    assert digests == {here + "\n"}


def test_stats_are_of_documents_not_trained_on(tmp_path: Path) -> None:
    docs = corpus()
    stats = json.loads(build(tmp_path, docs)["stats.json"])
    mask = split_of(docs, read_validation_groups(Folder(tmp_path / "split")))
    bpe = load_bpe((tmp_path / "tokenizer/tokenizer.json").read_bytes(), "<|endoftext|>", "test")
    texts = docs.filter(pa.array(mask & (docs["source"].to_numpy() == "web")))["text"]
    ids, _ = encode(bpe, texts)
    web = stats["sources"]["web"]
    size = sum(len(t.encode()) for t in texts.to_pylist())
    assert (web["split"], web["docs"], web["tokens"], web["bytes"]) == (
        "validation",
        len(texts),
        len(ids),
        size,
    )
    assert web["bytes_per_token"] == round(size / len(ids), 4)
    assert web["fertility"] == round(len(ids) / sum(len(t.split()) for t in texts.to_pylist()), 4)
    assert stats["sources"]["lone"]["split"] == "train"  # it has no validation, and the stats say so
    assert stats["round_trip"]["docs"] == sum(s["docs"] for s in stats["sources"].values())
    assert 0 < stats["unused_tokens"] < stats["vocab_size"] == 400


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=80), max_size=6))
def test_every_text_comes_back(small: Bpe, texts: list[str]) -> None:
    array = pa.chunked_array([pa.array(texts, pa.large_string())])
    ids, offsets = encode(small, array)
    for row, text in enumerate(texts):
        part = ids[offsets[row] : offsets[row + 1]]
        assert decode(small.tokenizer, part.tolist()) == text
        assert int(small.byte_lengths[part].sum()) == len(text.encode())
        assert int(small.lead_bytes[part].sum()) == len(text)


def test_text_cannot_forge_an_end_of_document(small: Bpe) -> None:
    ids, _ = encode(small, pa.chunked_array([pa.array(["a<|endoftext|>b"], pa.large_string())]))
    assert small.eos_id not in ids.tolist()
    assert decode(small.tokenizer, ids.tolist()) == "a<|endoftext|>b"


def test_token_bytes_are_the_alphabet_of_the_library(small: Bpe) -> None:
    from tokenizers import pre_tokenizers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert sorted(b for char in alphabet for b in token_bytes(char)) == list(range(256))


def test_a_given_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    data = train(corpus()["text"], TokenizerParams(vocab_size=300, eos_token="<eos>"))
    (tmp_path / "mine.json").write_bytes(data)
    files = build(tmp_path, corpus(), path=str(tmp_path / "mine.json"), eos_token="<eos>")
    assert files["tokenizer.json"] == data
    stage = Tokenizer(recipe(tokenizer={"path": str(tmp_path / "mine.json"), "eos_token": "<eos>"}))
    key = stage.key_params()
    assert "path" not in key and "vocab_size" not in key
    (tmp_path / "other.json").write_bytes(data)
    other = {"path": str(tmp_path / "other.json"), "eos_token": "<eos>", "sample_mb": 3}
    assert Tokenizer(recipe(tokenizer=other)).key_params() == key
    (tmp_path / "other.json").write_bytes(data + b"\n")
    assert Tokenizer(recipe(tokenizer=other)).key_params() != key


def test_tokenizers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers

    with pytest.raises(UserError, match=r"tokenizer\.path.*no such file"):
        Tokenizer(recipe(tokenizer={"path": str(tmp_path / "absent.json")})).key_params()
    with pytest.raises(UserError, match=r"here: not a tokenizer\.json"):
        load_bpe(b"{}", "x", "here")
    with pytest.raises(UserError, match="only byte-level BPE"):
        load_bpe(Library(models.WordLevel({"a": 0}, unk_token="a")).to_str().encode(), "a", "here")
    data = train(corpus()["text"], TokenizerParams(vocab_size=300))
    with pytest.raises(UserError, match=r"no special token '</s>'.*<\|endoftext\|>"):
        load_bpe(data, "</s>", "here")
    changed = Library.from_str(data.decode())
    changed.normalizer = normalizers.Lowercase()
    with pytest.raises(UserError, match="does not give back the text"):
        load_bpe(changed.to_str().encode(), "<|endoftext|>", "here")


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    docs = corpus()
    first = build(tmp_path / "whole", docs)
    for stop in range(1, 12):  # three tasks each of sampling, measuring, lines, origins
        made, here = prepared(tmp_path / str(stop), docs)
        killed = Context(**{**here.__dict__, "scheduler": Here(stop_after=stop)})
        with pytest.raises(KeyboardInterrupt):
            Tokenizer(made).run(killed)
        Tokenizer(made).run(here)
        assert contents(tmp_path / str(stop) / "tokenizer") == first


def test_training_is_not_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, here = prepared(tmp_path, corpus())
    with pytest.raises(KeyboardInterrupt):
        Tokenizer(made).run(Context(**{**here.__dict__, "scheduler": Here(stop_after=4)}))
    monkeypatch.setattr("corpusmill.pipeline.tokenizer.train.train", lambda *_: pytest.fail("trained again"))
    Tokenizer(made).run(here)


def test_what_was_trained_on_another_split_is_not_used(tmp_path: Path) -> None:
    other = recipe(["web", "code", "lone"], split={"validation_share": 0.4}, tokenizer=SIZE)
    for name, stop in (("fresh", 0), ("killed", 4)):
        made, here = prepared(tmp_path / name, corpus())
        with pytest.raises(KeyboardInterrupt):
            Tokenizer(made).run(Context(**{**here.__dict__, "scheduler": Here(stop_after=stop)}))
        for stage in (Split(other), Tokenizer(other)):
            stage.run(context(Folder(tmp_path / name), other, stage.name, here.partitions))
    assert contents(tmp_path / "killed/tokenizer") == contents(tmp_path / "fresh/tokenizer")


def test_nothing_to_train_on_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.sample_mb"):
        build(tmp_path, corpus(), sample_mb=1e-6)


def test_decomposed_text_comes_back_composed(tmp_path: Path) -> None:
    docs = documents([f"cafe\u0301 {words(40, i)} a\u0308o\u0308 {i}" for i in range(60)], "web")
    stats = json.loads(build(tmp_path, docs, nfc=True)["stats.json"])
    assert stats["round_trip"] == {"docs": stats["sources"]["web"]["docs"], "changed": 0}
    bpe = load_bpe((tmp_path / "tokenizer/tokenizer.json").read_bytes(), "<|endoftext|>", "test")
    ids, _ = encode(bpe, pa.chunked_array([pa.array(["cafe\u0301"], pa.large_string())]))
    assert decode(bpe.tokenizer, ids.tolist()) == "caf\u00e9"


def test_a_document_that_comes_back_changed_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def wrong(bpe: Bpe, texts: pa.ChunkedArray) -> Any:
        ids, starts = encode(bpe, texts)
        ids = ids.copy()
        ids[0] = ids[0] + 1 if ids[0] < 250 else 5
        return ids, starts

    monkeypatch.setattr("corpusmill.pipeline.tokenizer.measure.encode", wrong)
    with pytest.raises(
        WorkError, match=r"^tokenizer: \d+ documents do not decode to their own text, first [0-9a-f]{32}$"
    ):
        build(tmp_path, corpus())
