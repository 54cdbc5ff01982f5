"""The measured similarity across the split: exact, by source, and with deduplication below its threshold."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import SIMILARITY, groups_of, read_validation_groups, split_of
from corpusmill.pipeline.split.measure import MEMBERS, members
from corpusmill.pipeline.split.similarity import VIEW, draw, fair, views
from corpusmill.pipeline.split.stage import Split
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.corpus import Here, contents, context, documents, partitions, recipe, words


def run(
    tmp: Path, docs: pa.Table, parts: int = 2, dedup: dict[str, Any] | None = None, shuffle: int | None = None,
    **params: Any,
) -> dict[str, Any] | None:  # fmt: skip
    sources = sorted(set(docs["source"].to_pylist()))
    made = recipe(sources, split={"validation_share": 0.2, **params}, dedup=dedup or {})
    split = Split(made)
    where = context(Folder(tmp), made, "split", partitions(Folder(tmp / "redact"), docs, parts, shuffle))
    files, _ = split.run(where)
    if SIMILARITY not in {file.path for file in files}:
        return None
    return json.loads((Folder(tmp) / "split" / SIMILARITY).read())


def brute(docs: pa.Table, tmp: Path, params: DedupParams) -> dict[str, tuple[float, str, float]]:
    """Validation id -> (highest Jaccard, the train id that has it, highest share inside one of train)."""
    mask = split_of(docs, read_validation_groups(Folder(tmp / "split")))
    text = docs["text"].combine_chunks()
    bounds, hashes = Shingling(params, 0).sets(text, np.arange(len(docs)))
    sets = [set(hashes[a:b].tolist()) for a, b in pairwise(bounds.tolist())]
    ids = [i.hex() for i in docs["doc_id"].to_pylist()]
    found = {}
    for v in np.flatnonzero(mask):
        pairs = [(len(sets[v] & sets[t]), t) for t in np.flatnonzero(~mask)]
        scored = sorted((-n / max(1, len(sets[v] | sets[t])), ids[t]) for n, t in pairs)
        inside = max(n / max(1, len(sets[v])) for n, _ in pairs)
        found[ids[v]] = (-scored[0][0], scored[0][1], inside)
    return found


def mixed(seed: int, count: int) -> list[str]:
    """Texts that share whole passages."""
    draw_ = np.random.default_rng(seed)
    passages = [words(12, i) for i in range(12)]
    return ["\n".join(draw_.choice(passages, draw_.integers(0, 5))) for _ in range(count)]


@pytest.mark.parametrize(
    "dedup", [{}, {"ngram": 2}, {"shingle": "char", "ngram": 9}, {"preset": "datatrove"}]
)
def test_every_similarity_is_the_exact_one(tmp_path: Path, dedup: dict[str, Any]) -> None:
    docs = pa.concat_tables([documents(mixed(1, 80), "web"), documents(mixed(2, 40), "books")])
    facts = run(tmp_path, docs, dedup=dedup)
    assert facts is not None
    expected = brute(docs, tmp_path, DedupParams.model_validate(dedup))
    assert facts["compared"] == facts["validation_documents"] == len(expected)
    values = sorted(value for value, _, _ in expected.values())
    assert facts["jaccard"]["max"] == round(values[-1], 6)
    assert facts["jaccard"]["above"] == sum(value >= 0.8 for value in values)
    assert facts["inside"]["max"] == round(max(inside for _, _, inside in expected.values()), 6)
    assert sum(facts["histogram"]["jaccard"]) == sum(facts["histogram"]["inside"]) == len(expected)
    for pair in facts["worst"]:
        value, train, inside = expected[pair["validation"]]
        assert (pair["jaccard"], pair["train"], pair["inside"]) == (round(value, 6), train, round(inside, 6))
    assert [p["jaccard"] for p in facts["worst"]] == [round(v, 6) for v in values[:-11:-1] if v]
    for name, one in facts["sources"].items():
        assert one["jaccard"]["max"] == max((p["jaccard"] for p in one["worst"]), default=0.0)
        assert all(p["validation_source"] == name for p in one["worst"])
    assert sum(one["compared"] for one in facts["sources"].values()) == facts["compared"]


def test_a_copy_on_the_other_side_is_found_and_reported(tmp_path: Path) -> None:
    texts = [words(80, i) for i in range(20)]
    logged: list[str] = []
    docs = pa.concat_tables(
        [documents(texts, "held"), documents([words(50, 99), texts[3], *texts[5:7]], "web")]
    )
    made = recipe(
        ["held", "web"], split={"per_source": {"held": {"only": "validation"}, "web": {"only": "train"}}}
    )
    where = context(Folder(tmp_path), made, "split", partitions(Folder(tmp_path / "redact"), docs, 3))
    where = type(where)(**{**where.__dict__, "log": logged.append})
    _, counters = Split(made).run(where)
    assert counters["similarity_above"] == 3 and counters["similarity_compared"] == 20
    assert logged[-1].endswith(
        "the highest is 1.000, half of them have at most 0.000; 3 reach 0.8, at which deduplication removes."
    )


@pytest.mark.parametrize("parts", [1, 3])
def test_of_equals_the_least_id_is_named(tmp_path: Path, parts: int) -> None:
    docs = pa.concat_tables([documents([words(30, 1)], "held"), documents([words(30, 1)] * 9, "web")])
    facts = run(
        tmp_path,
        docs,
        parts,
        shuffle=3,
        per_source={"held": {"only": "validation"}, "web": {"only": "train"}},
    )
    assert facts is not None
    least = min(
        i for i, s in zip(docs["doc_id"].to_pylist(), docs["source"].to_pylist(), strict=True) if s == "web"
    )
    assert facts["worst"][0]["train"] == least.hex()


@pytest.mark.parametrize("text", ["", "one two", "?!"])
def test_short_texts_and_texts_without_words(tmp_path: Path, text: str) -> None:
    docs = documents([*[text] * 20, words(3, 1), words(3, 2)], "web")
    facts = run(tmp_path, docs, validation_share=0.4)
    assert facts is not None
    expected = [value for value, _, _ in brute(docs, tmp_path, DedupParams()).values()]
    assert facts["compared"] == len(expected) and facts["jaccard"]["max"] == max(expected)
    assert facts["jaccard"]["above"] == sum(value >= 0.8 for value in expected)
    assert (max(expected) == 1.0) == (text == "one two"), "copies on both sides"


def test_deduplicated_at_its_threshold_nothing_is_above(tmp_path: Path) -> None:
    """Real stages: near-copies of every similarity planted, `dedup` at 0.8, then the split."""
    from corpusmill.pipeline.engine.runner import Run

    draw_ = np.random.default_rng(5)
    lines = []
    for number in range(150):
        # Words of its own, so that documents are alike only by design.
        base = [f"w{number}x{i}" for i in range(120)]
        lines.append(" ".join(base))
        for changed in draw_.integers(0, 25, 2):
            copy = list(base)
            for place in draw_.choice(120, changed, replace=False):
                copy[place] = f"n{number}y{place}"
            lines.append(" ".join(copy))
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    made = {}
    for stages in (["ingest", "dedup", "split"], ["ingest", "split"]):
        one = recipe(["web"], split={"validation_share": 0.3}, ingest={"partition_mb": 0.05}, stages=stages)
        one = one.model_copy(
            update={"sources": {"web": one.sources["web"].model_copy(update={"paths": [str(raw)]})}}
        )
        folder = tmp_path / str(len(stages))
        run_ = Run(one, Folder(folder), Here())
        run_.execute(run_.plan())
        made[len(stages)] = json.loads((folder / "split" / SIMILARITY).read_text())
    with_dedup, without = made[3], made[2]
    assert without["jaccard"]["above"] > 10 and not without["deduplicated"]
    assert with_dedup["deduplicated"] and with_dedup["compared"] == with_dedup["validation_documents"] > 30
    assert with_dedup["jaccard"]["above"] == 0 and 0.4 < with_dedup["jaccard"]["max"] < 0.8
    assert "none reaches 0.8, at which deduplication removes" in with_dedup["sentence"]


def test_switched_off_it_is_not_there(tmp_path: Path) -> None:
    docs = documents([words(30, i) for i in range(20)])
    assert run(tmp_path, docs, similarity_mb=0) is None
    assert run(tmp_path / "none", docs, validation_share=0.0) is None


def test_a_bound_makes_it_a_sample_that_partitions_do_not_change(tmp_path: Path) -> None:
    docs = documents([words(100, i) for i in range(200)])
    bound = 5_000 / (1 << 20)
    first = run(tmp_path / "1", docs, 1, similarity_mb=bound)
    assert first is not None and 0 < first["compared"] < first["validation_documents"]
    assert first["compared_bytes"] <= 5_000 and "drawn by a hash" in first["sentence"]
    run(tmp_path / "6", docs, 6, similarity_mb=bound, shuffle=1)
    assert contents(tmp_path / "1/split") == contents(tmp_path / "6/split")


def test_what_a_killed_run_left_is_used_again(tmp_path: Path) -> None:
    docs = documents([words(60, i) for i in range(60)])
    made = recipe(split={"validation_share": 0.2})
    parts = partitions(Folder(tmp_path / "redact"), docs, 4)
    run(tmp_path / "whole", docs, 4)
    for stop in (2, 6, 10):  # in each of the three passes
        with pytest.raises(KeyboardInterrupt):
            Split(made).run(context(Folder(tmp_path), made, "split", parts, Here(stop_after=stop)))
    left = list((tmp_path / "split/scratch/similarity/best").iterdir())
    assert len(left) == 2
    Split(made).run(context(Folder(tmp_path), made, "split", parts))
    assert contents(tmp_path / "split") == contents(tmp_path / "whole/split")


def test_what_was_compared_with_another_train_is_not_used_again(tmp_path: Path) -> None:
    """A killed run, then another choice of validation with the same sample: a document too long for it changes sides."""
    short = [words(20, i) for i in range(8)]
    docs = pa.concat_tables(
        [documents(short, "held"), documents([" ".join([*short, words(400, 99)])], "long")]
    )
    parts, bound = partitions(Folder(tmp_path / "redact"), docs, 1), 2_000 / (1 << 20)
    found = {}
    for long in ("train", "validation"):
        sides = {"held": {"only": "validation"}, "long": {"only": long}}
        made = recipe(["held", "long"], split={"per_source": sides, "similarity_mb": bound})
        run_of = context(Folder(tmp_path), made, "split", parts)
        Split(made).run(run_of)  # what it left in scratch is there until the runner publishes the stage
        found[long] = json.loads((tmp_path / "split" / SIMILARITY).read_text())["inside"]["max"]
    assert found == {"train": 1.0, "validation": 0.0}


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 300))
def test_fair_parts(amounts: list[int], limit: int) -> None:
    parts = fair(amounts, limit)
    assert all(0 <= part <= amount for part, amount in zip(parts, amounts, strict=True))
    assert sum(parts) <= limit and (sum(amounts) > limit or parts == amounts)
    cut = [part for part, amount in zip(parts, amounts, strict=True) if part < amount]
    assert (
        not cut
        or min(cut) >= max(set(parts) - set(cut), default=0) - len(amounts)
        or max(cut) - min(cut) <= 1
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 50)), max_size=30),
    st.integers(0, 400), st.integers(0, 20), st.integers(0, 5),
)  # fmt: skip
def test_what_is_drawn_fits(rows: list[tuple[str, int, int]], limit: int, most: int, seed: int) -> None:
    docs = documents([str(i) for i in range(len(rows))], "x", {i: str(r[1]) for i, r in enumerate(rows)})
    made = members(
        [
            pa.table(
                [
                    pa.array([r[0] for r in rows], pa.string()), groups_of(docs),
                    pa.array([1] * len(rows), pa.int64()), pa.array([r[2] for r in rows], pa.int64()),
                ],
                schema=MEMBERS,
            )
        ]
    )  # fmt: skip
    taken = draw(made, limit, seed, most)
    size = count = 0
    for source, groups in taken.items():
        assert groups.to_pylist() == sorted(groups.to_pylist())
        for s, g, d, b in zip(*(column.to_pylist() for column in made.columns), strict=True):
            if s == source and g in set(groups.to_pylist()):
                size, count = size + b, count + d
    assert size <= limit and count <= most
    if sum(r[2] for r in rows) <= limit and len(rows) <= most:
        assert count == len(rows)


@given(st.lists(st.integers(0, 2 * VIEW), max_size=20))
def test_views_are_bounded_and_lose_nothing(sizes: list[int]) -> None:
    array, rows = np.array(sizes, np.int64), np.arange(len(sizes))[::-1]
    parts = list(views(array, rows))
    assert [int(r) for part in parts for r in part] == rows.tolist()
    assert all(len(part) == 1 or array[part].sum() <= VIEW for part in parts)
