"""What the stage promises, shown on corpora where the truth is known: by construction, or by plain Python sets
of the words themselves, pair by pair."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from tests.pipeline.dedup.helpers import Doc, Result, dedup, docs_of, edited, words
from tests.pipeline.dedup.plain_sets import jaccard, similar

Made = Callable[[random.Random, float, int], list[str]]


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_small_documents_that_have_nothing_in_common_stay(root: Folder) -> None:
    """Of one to six words, below and above the length of a shingle, all different; then each of them twice."""
    generator = random.Random(30)
    texts = [" ".join(words(generator, length)) for length in (1, 2, 3, 4, 5, 6) for _ in range(100)]
    assert not dedup(root / "once", docs_of(texts), 3).removed
    twice = dedup(root / "twice", docs_of(texts * 2), 3)
    assert len(twice.removed) == 600 and twice.counters["largest_cluster"] == 2


def prefix(generator: random.Random, shared: float, length: int) -> list[str]:
    """The template first, then the body."""
    common = words(generator, round(length * shared))
    return [" ".join(common + words(generator, length - len(common))) for _ in range(1000)]


def around(generator: random.Random, shared: float, length: int) -> list[str]:
    """Header and footer around the body."""
    common = words(generator, round(length * shared))
    half = len(common) // 2
    bodies = [words(generator, length - len(common)) for _ in range(1000)]
    return [" ".join([*common[:half], *body, *common[half:]]) for body in bodies]


def form(generator: random.Random, shared: float, length: int) -> list[str]:
    """A form: after each label of a few words a field that is filled in."""
    fields = round(length * (1 - shared))
    labels = [words(generator, round(shared / (1 - shared))) for _ in range(fields)]
    return [
        " ".join(word for label in labels for word in [*label, *words(generator, 1)]) for _ in range(1000)
    ]


def uneven(generator: random.Random, shared: float, length: int) -> list[str]:
    """The template with bodies of all lengths down to one word."""
    common = words(generator, round(length * shared))
    most = 2 * (length - len(common))
    return [" ".join(common + words(generator, generator.randint(1, most))) for _ in range(1000)]


@pytest.mark.parametrize(
    ("made", "shared", "length"),
    [
        (prefix, 0.8, 400), (prefix, 0.8, 60), (around, 0.8, 400), (around, 0.85, 600), (form, 0.9, 300),
        (form, 0.95, 400), (prefix, 0.5, 40),
    ],
)  # fmt: skip
def test_a_thousand_templated_documents_stay(root: Folder, made: Made, shared: float, length: int) -> None:
    """80 % boilerplate and more, different bodies, less alike than the threshold: not one goes, though bands
    bring them together."""
    texts = made(random.Random(31), shared, length)
    assert not similar(texts[:150], 0.8)
    result = dedup(root, docs_of(texts), 3)
    assert not result.removed and result.counters["clusters"] == 0
    assert result.counters["candidates"] > 0 or shared < 0.8
    assert all(row["cluster_id"] is None for row in result.kept.values())


def check_truth(result: Result, docs: Sequence[Doc], recall: float) -> int:
    """Removed texts are as similar to their survivors as the ledger records, and kept texts have no more twins than the recall
    allows; how many documents have any."""
    of = {doc.id: doc.text for doc in docs}
    for identity, row in result.removed.items():
        true = jaccard(of[identity], of[row["duplicate_of"]])
        assert true >= 0.8 and row["jaccard"] == pytest.approx(true, abs=1e-12)
    pairs = similar([doc.text for doc in docs], 0.8)
    kept = [doc.id in result.kept for doc in docs]
    alike = {place for pair in pairs for place in pair}
    missed = {j for i, j in pairs if kept[i] and kept[j]}
    assert len(missed) <= (1 - recall) * len(alike) + 3 * (recall * (1 - recall) * len(alike)) ** 0.5
    assert {i for i in range(len(docs)) if not kept[i]} <= alike
    return len(alike)


@pytest.mark.parametrize(
    ("made", "shared", "length"), [(uneven, 0.85, 150), (uneven, 0.8, 60), (prefix, 0.9, 80), (form, 0.985, 200)]
)  # fmt: skip
def test_of_small_bodies_only_what_is_truly_alike_goes(
    root: Folder, made: Made, shared: float, length: int
) -> None:
    """So small a body that some or all are over the threshold: each removal is right, by every pair compared."""
    texts = made(random.Random(32), shared, length)[:500]
    docs = docs_of(texts)
    result = dedup(root, docs, 3, max_source_loss=1.0)
    assert check_truth(result, docs, 0.95) > 0


def test_edited_copies_among_a_thousand_templated_documents(root: Folder) -> None:
    """Some documents of the template have true near-copies: those go, and no other."""
    generator = random.Random(33)
    texts = prefix(generator, 0.8, 300)[:500]
    copies = [
        edited(generator, text, generator.randint(1, 4)) for text in generator.choices(texts[:100], k=200)
    ]
    docs = docs_of([*texts, *copies])
    result = dedup(root, docs, 3)
    assert check_truth(result, docs, 0.95) > 200
    assert {doc.id for doc in docs[100:500]} <= result.kept.keys()
    assert len(result.removed) > 180


@pytest.mark.parametrize(("bodies", "stops"), [(1, True), (4, True), (80, False)])
def test_the_guard_of_a_source_on_a_template(root: Folder, bodies: int, stops: bool) -> None:
    """A template with bodies too small to tell it apart by: the run stops instead of leaving one of 1,000."""
    generator = random.Random(34)
    common = words(generator, 200)
    docs = docs_of([" ".join(common + words(generator, bodies)) for _ in range(1000)], "forms")
    docs += docs_of([" ".join(words(generator, 60)) for _ in range(50)], "prose")
    if not stops:
        assert not dedup(root, docs, 3).removed
        return
    with pytest.raises(WorkError, match=r"source 'forms' would lose 999 of 1000 documents \(100%\)"):
        dedup(root, docs, 3)
    rows = pq.read_table(root.url + "/dedup/clusters.parquet")
    assert rows.num_rows == 1000 and sum(rows["kept"].to_pylist()) == 1
    with pytest.raises(WorkError, match=r"1000 different texts, more than dedup\.max_cluster 999"):
        dedup(root, docs, 3, max_source_loss=1.0, max_cluster=999)
    loose = dedup(root, docs, 3, max_source_loss=1.0, max_cluster=1000)
    assert loose.counters["source/forms/removed"] == 999 and loose.counters["source/prose/removed"] == 0


def test_the_guard_looks_at_each_source(root: Folder) -> None:
    """A share that is small in the corpus and large in one source stops the run, and not below it."""
    generator = random.Random(35)
    text = " ".join(words(generator, 200))
    texts = [edited(generator, text, 1) for _ in range(40)]
    docs = docs_of([*texts, *(" ".join(words(generator, 40)) for _ in range(60))], "small")
    docs += docs_of([" ".join(words(generator, 40)) for _ in range(500)], "large")
    with pytest.raises(WorkError, match=r"source 'small' would lose 39 of 100 documents \(39%\)"):
        dedup(root, docs, 3, max_source_loss=0.38)
    assert len(dedup(root, docs, 3, max_source_loss=0.39).removed) == 39


def test_a_huge_document_does_not_take_its_excerpts(root: Folder) -> None:
    """500,000 words, and 200 texts that lie in it word for word: no two of them are near-copies."""
    generator = random.Random(36)
    huge = words(generator, 500_000)
    starts = generator.sample(range(0, 499_000, 1000), 200)
    excerpts = [" ".join(huge[start : start + generator.randint(3, 400)]) for start in starts]
    docs = docs_of([" ".join(huge), *excerpts])
    result = dedup(root, docs, 3, planted=0)
    assert not result.removed and result.counters["clusters"] == 0


@pytest.mark.slow
def test_with_containment_the_excerpts_go_and_the_huge_document_stays(root: Folder) -> None:
    """Of 40 words and more: enough for a run of shingles that is surely noticed."""
    generator = random.Random(37)
    huge = words(generator, 500_000)
    starts = generator.sample(range(0, 499_000, 1000), 200)
    excerpts = [" ".join(huge[start : start + generator.randint(40, 400)]) for start in starts]
    docs = docs_of([" ".join(huge), *excerpts])
    result = dedup(root, docs, 3, planted=0, containment=0.95, max_source_loss=1.0)
    assert result.kept.keys() == {docs[0].id}
    assert {row["duplicate_of"] for row in result.removed.values()} == {docs[0].id}


def messy(data: Path) -> list[Doc]:
    """Country pages of one mould, questions and answers with HTML, the same declaration in 300 languages, real
    near-copies; and of some of them copies as crawls make them: in capitals, cut off, framed, edited."""
    generator = random.Random(38)
    docs: list[Doc] = []

    def add(source: str, texts: list[str]) -> None:
        docs.extend(docs_of(texts, source))

    def rows(path: str) -> list[dict[str, object]]:
        with gzip.open(data / path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    factbook = sorted((data / "natural/encyclopedic_factbook").glob("*.jsonl.gz"))[0]
    pages = rows(str(factbook.relative_to(data)))
    add("factbook", [json.dumps(page["data"], ensure_ascii=False) for page in pages][:40])
    posts = sorted((data / "natural/qa_stackexchange").glob("*.jsonl.gz"))[0]
    add("posts", [str(post["Body"]) for post in rows(str(posts.relative_to(data)))][:1200])
    declarations = sorted((data / "langid/udhr2").glob("*.jsonl.gz"))[0]
    add("udhr", [str(row["text"]) for row in rows(str(declarations.relative_to(data)))])
    news = (data / "neardup/mccormick_minhash/articles_1000.train").read_text(encoding="utf-8").splitlines()
    add("news", [line.split(" ", 1)[1] for line in news if line])
    copies = []
    for doc in generator.sample(docs, 300):
        found = doc.text.split()
        change = generator.choice(["upper", "cut", "frame", "edit", "spaces", "same"])
        if change == "cut":
            found = found[: max(1, int(len(found) * generator.uniform(0.6, 1)))]
        elif change == "frame":
            found = ["Home", "»", "Log", "in", *found, "©", "2019", "All", "rights", "reserved."]
        elif change == "edit" and len(found) > 20:
            found = edited(generator, " ".join(found), max(1, len(found) // 80)).split()
        text = ("\n\t" if change == "spaces" else " ").join(found)
        copies.append(text.upper() if change == "upper" else doc.text if change == "same" else text)
    add("mirror", copies)
    generator.shuffle(docs)
    return docs


@pytest.mark.slow
def test_every_removal_on_a_messy_corpus_is_right_by_plain_sets(root: Folder, data_dir: Path) -> None:
    docs = messy(data_dir)
    result = dedup(root, docs, 3, max_source_loss=1.0)
    of = {doc.id: doc.text for doc in docs}
    assert len(result.removed) > 200 and result.counters["near_removed"] > 100
    compared = 0
    for identity, row in result.removed.items():
        assert row["duplicate_of"] in result.kept
        one, two = of[identity], of[row["duplicate_of"]]
        if row["rule"] == "dedup.exact":
            assert one == two
            continue
        true = jaccard(one, two)
        compared += 1
        assert true >= 0.8 and row["jaccard"] == pytest.approx(true, abs=1e-12)
    assert compared == result.counters["near_removed"]
