"""The sample: its shares, its edge, the same for any partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids, purpose_seed
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.split.stage import Split
from corpusmill.pipeline.tokenizer.sample import Drawn, draw, parts
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.corpus import Here, context, documents, partitions, recipe, words

HELD = {"web": 6000, "code": 3000, "lone": 1000}


def corpus() -> pa.Table:
    web = documents([words(60 + i % 50, i) for i in range(300)], "web")
    return pa.concat_tables([web, documents([words(40, 1000 + i) for i in range(200)], "code")])


def prepared(
    tmp: Path, docs: pa.Table, count: int = 3, shuffle: int | None = None
) -> tuple[Context, Any, Recipe]:
    made = recipe(["web", "code"], split={"validation_share": 0.05})
    published = partitions(Folder(tmp / "redact"), docs, count, shuffle)
    Split(made).run(context(Folder(tmp), made, "split", published))
    splits = json.loads((tmp / "split/split.json").read_text())["sources"]
    return context(Folder(tmp), made, "tokenizer", published, Here(reverse=bool(shuffle))), splits, made


def texts_of(drawn: Drawn) -> list[tuple[str, str]]:
    rows = [
        row
        for table in drawn.tables()
        for row in zip(table["source"].to_pylist(), table["text"].to_pylist(), strict=True)
    ]
    return sorted(rows)


def test_a_part_is_the_first_documents_by_hash_and_the_start_of_the_next(tmp_path: Path) -> None:
    docs = corpus()
    here, splits, made = prepared(tmp_path, docs)
    train = {text for _, text in texts_of(draw(here, 10**9, splits, "other"))}
    drawn = draw(here, 20_000, splits, "key", {"web": 3, "code": 1})
    assert drawn.bytes == 20_000
    for source, limit in (("web", 15_000), ("code", 5_000)):
        mine = docs.filter(pa.compute.equal(docs["source"], source))
        hashes = hash_ids(mine["doc_id"], purpose_seed(made.seed, "tokenizer"))
        expected, left = [], limit
        for _, text in sorted(zip(hashes.tolist(), mine["text"].to_pylist(), strict=True)):
            if text in train and left > 0:
                expected.append(text.encode()[:left].decode(errors="ignore"))
                left -= len(text.encode())
        got = [text for name, text in texts_of(drawn) if name == source]
        assert got == sorted(expected)
        assert drawn.edges[source].docs == len(expected) and drawn.edges[source].bytes == limit


@pytest.mark.parametrize("weights", [None, {"web": 1, "code": 4}])
def test_partitions_and_order_change_nothing(tmp_path: Path, weights: dict[str, float] | None) -> None:
    docs = corpus()
    first = None
    for count, shuffle in ((1, None), (4, 7), (9, 8)):
        here, splits, _ = prepared(tmp_path / str(count), docs, count, shuffle)
        drawn = draw(here, 9_000, splits, "key", weights)
        first = first or (texts_of(drawn), drawn.edges)
        assert (texts_of(drawn), drawn.edges) == first


def test_what_a_killed_run_drew_is_used_for_the_same_work_only(tmp_path: Path) -> None:
    here, splits, _ = prepared(tmp_path, corpus())
    drawn = draw(here, 9_000, splits, "key")
    idle = Context(**{**here.__dict__, "scheduler": Here(stop_after=0)})
    assert texts_of(draw(idle, 9_000, splits, "key")) == texts_of(drawn)
    with pytest.raises(KeyboardInterrupt):
        draw(idle, 9_000, splits, "other key")
    (drawn.work / drawn.files[0].path).write(b"")
    with pytest.raises(KeyboardInterrupt):
        draw(idle, 9_000, splits, "key")


def test_a_guess_that_was_too_low_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, splits, _ = prepared(tmp_path, corpus())
    first = draw(here, 9_000, splits, "key")
    wanted = texts_of(first), first.edges
    monkeypatch.setattr("corpusmill.pipeline.tokenizer.sample._guess", lambda *_: 2**50)
    drawn = draw(here, 9_000, splits, "another key")
    assert (texts_of(drawn), drawn.edges) == wanted


def test_parts_without_weights_follow_the_sources() -> None:
    assert parts(HELD, 10**6, {}) == HELD
    assert parts(HELD, 1000, {}) == {"web": 600, "code": 300, "lone": 100}


def test_what_a_source_cannot_give_goes_to_the_others() -> None:
    assert parts(HELD, 4000, {"web": 1, "code": 1, "lone": 0}) == {"web": 2000, "code": 2000, "lone": 0}
    assert parts(HELD, 4000, {"web": 1, "code": 1, "lone": 2}) == {"web": 1500, "code": 1500, "lone": 1000}
    assert parts(HELD, 9000, {"web": 1, "code": 8, "lone": 1}) == {"web": 5000, "code": 3000, "lone": 1000}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**12), min_size=1),
    st.integers(0, 10**12),
    st.lists(st.floats(0, 1e6), min_size=6, max_size=6),
)
def test_parts_fit(held: dict[str, int], limit: int, drawn: list[float]) -> None:
    weights = dict(zip(sorted(held), drawn, strict=False))
    got = parts(held, limit, weights)
    assert all(0 <= got[source] <= size for source, size in held.items())
    assert sum(got.values()) <= limit
    able = sum(size for source, size in held.items() if weights[source] > 0)
    assert sum(got.values()) >= min(able, limit) - max(8, limit // 10**9)


def test_a_source_without_train_text_leaves_its_part_to_the_others() -> None:
    assert parts({"web": 50, "code": 50}, 60, {"web": 1, "code": 1, "all_removed": 4}) == {
        "web": 30,
        "code": 30,
    }
    assert parts({"web": 50, "stray": 50}, 60, {"web": 1}) == {"web": 50, "stray": 0}


def test_the_sample_leaves_out_what_is_for_validation_only(tmp_path: Path) -> None:
    made = recipe(
        ["web", "code"],
        split={"validation_share": 0.05, "per_source": {"code": {"only": "validation"}}},
        tokenizer={"weights": {"web": 1, "code": 0}},
    )
    published = partitions(Folder(tmp_path / "redact"), corpus(), 3)
    Split(made).run(context(Folder(tmp_path), made, "split", published))
    splits = json.loads((tmp_path / "split/split.json").read_text())["sources"]
    for weights in ({"web": 1, "code": 0}, {"web": 1}):
        drawn = draw(context(Folder(tmp_path), made, "tokenizer", published), 9_000, splits, "key", weights)
        assert drawn.bytes == 9_000 and set(drawn.edges) == {"web"}


@pytest.mark.parametrize(
    ("weights", "line"),
    [
        (
            {"web": 1, "held": 0},
            "tokenizer.weights: no weight for source 'code'; give one, or 0 to leave it out",
        ),
        (
            {"web": 1, "cod": 1},
            "tokenizer.weights: 'cod' is not a source; did you mean 'code'?; sources are code, held, web",
        ),
        (
            {"web": 1, "code": 1, "held": 2},
            "tokenizer.weights: 'held' is for validation only (split.per_source), and not trained on; give it 0",
        ),
    ],
)
def test_weights_are_held_to_the_sources_before_any_work(weights: dict[str, float], line: str) -> None:
    split = {"per_source": {"held": {"only": "validation"}}}
    with pytest.raises(UserError) as caught:
        Tokenizer(recipe(["web", "code", "held"], split=split, tokenizer={"weights": weights}))
    assert str(caught.value) == line


@pytest.mark.parametrize("weights", [{}, {"web": 1, "code": 0}, {"web": 1, "code": 0, "held": 0}])
def test_weights_that_are_allowed(weights: dict[str, float]) -> None:
    split = {"per_source": {"held": {"only": "validation"}}}
    Tokenizer(recipe(["web", "code", "held"], split=split, tokenizer={"weights": weights}))
    Tokenizer(recipe(split=split, tokenizer={"weights": {"other": 1}, "path": "given.json"}))  # idle there


def test_weights_are_shares() -> None:
    for weights in ({"web": -1.0}, {"web": 0.0}, {"web": float("nan")}):
        with pytest.raises(ValueError, match="weights"):
            recipe(tokenizer={"weights": weights})
