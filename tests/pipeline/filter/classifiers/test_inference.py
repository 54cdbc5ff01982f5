"""The kernels against fastText itself: shipped models, and small ones of every loss and form."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.common.ids import checksum
from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
from corpusmill.pipeline.filter.classifiers.inference import remainder
from corpusmill.pipeline.filter.classifiers.model_file import read_model
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from tests.pipeline.filter.classifiers.oracle import compare, train, words_of
from tests.pipeline.filter.helpers import PROSE

SHIPPED = ("lid.176.ftz", "quality.ftz")

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
# Words that the small models know, the end of a line, labels, and white space of every kind.
KNOWN = st.lists(
    st.sampled_from(
        [
            "buy",
            "river",
            "</s>",
            "__label__a",
            "__label__zz",
            "__label",
            "été",
            "河",
            "\x00",
            "\v",
            "\u3000",
            " ",
            "\n",
        ]
    ),
    max_size=30,
).map(" ".join)

BASE: dict[str, Any] = {"epoch": 5, "minCount": 1, "bucket": 3000, "seed": 1, "lr": 0.5}
QUANT: dict[str, Any] = {"qnorm": True, "retrain": True, "epoch": 2, "lr": 0.2}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "softmax": ({**BASE, "loss": "softmax", "dim": 16}, None),
    "softmax-grams": ({**BASE, "loss": "softmax", "dim": 21, "wordNgrams": 3}, None),
    "softmax-subwords": ({**BASE, "loss": "softmax", "dim": 10, "minn": 1, "maxn": 3, "wordNgrams": 2}, None),
    "softmax-pruned": ({**BASE, "loss": "softmax", "dim": 10, "wordNgrams": 2}, {**QUANT, "cutoff": 400, "dsub": 3}),
    "softmax-unpruned": ({**BASE, "loss": "softmax", "dim": 10, "minn": 2, "maxn": 4}, {"dsub": 2, "qnorm": False}),
    "hs": ({**BASE, "loss": "hs", "dim": 8, "minn": 2, "maxn": 4}, None),
    "hs-quantised": (
        {**BASE, "loss": "hs", "dim": 7, "minn": 2, "maxn": 3}, {**QUANT, "cutoff": 500, "dsub": 2, "qout": True},
    ),
    "ova": ({**BASE, "loss": "ova", "dim": 16, "wordNgrams": 2}, None),
    "ova-quantised": ({**BASE, "loss": "ova", "dim": 16, "minn": 2, "maxn": 3}, {**QUANT, "cutoff": 500}),
    "ns": ({**BASE, "loss": "ns", "dim": 16, "neg": 3}, None),
}  # fmt: skip


def lines() -> str:
    """Labelled lines of 300 labels (more than the output's quantiser needs), five of them common."""
    rng = random.Random(7)
    stock = [f"word{i}" for i in range(250)] + [
        "buy",
        "cheap",
        "win",
        "river",
        "bridge",
        "été",
        "河",
        "улица",
        "straße",
        "don't",
    ]
    out = []
    for number in range(1500):
        label = "abcde"[number % 5] if number % 3 else f"rare{number // 3 % 300}"
        some = " ".join(rng.choice(stock) for _ in range(rng.randint(1, 12)))
        out.append(f"__label__{label} {some} {label * 3}\n")
    return "".join(out)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Predictor, Any]]:
    paths = train(tmp_path_factory.mktemp("models"), KINDS, lines())
    models = {}
    for name, path in paths.items():
        xxh3 = checksum(path.read_bytes())
        models[name] = (predictor.load(str(path), xxh3), fasttext_model.load(str(path), xxh3))
    return models


@pytest.fixture(scope="module")
def shipped() -> dict[str, tuple[Predictor, Any]]:
    files = {name: fasttext_model.shipped(name) for name in SHIPPED}
    return {
        name: (predictor.load(f.path, f.xxh3), fasttext_model.load(f.path, f.xxh3))
        for name, f in files.items()
    }


def test_small_models_are_what_their_names_say(small: dict[str, tuple[Predictor, Any]]) -> None:
    for name, (model, library) in small.items():
        args = library.f.getArgs()
        assert model._arrays is not None and args.loss.name == name.split("-")[0]
        assert library.f.isQuant() == (KINDS[name][1] is not None)
        assert bool(model._arrays.numbers.summed) == (args.maxn > 0 and args.loss.name in ("hs", "softmax"))


@pytest.mark.parametrize("kind", KINDS)
def test_made_texts_by_small_models(small: dict[str, tuple[Predictor, Any]], kind: str) -> None:
    rng = random.Random(3)
    known = lines().split()
    texts = [
        "",
        " ",
        "\n\n",
        "</s>",
        "river </s> buy",
        "__label__a",
        "__label__a buy",
        "__label__ buy",
        "nothing known",
    ]
    texts += [" ".join(rng.choice(known) for _ in range(rng.randint(1, 60))) for _ in range(200)]
    texts += ["".join(rng.choice("abcdé河 ") for _ in range(rng.randint(1, 3000))) for _ in range(20)]
    compare(*small[kind], texts)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(ANY | KNOWN, min_size=1, max_size=4))
@example(["\ufeff", "\U0010ffff" * 50, "a" * 5000])
def test_any_text_by_small_models(
    small: dict[str, tuple[Predictor, Any]], kind: str, texts: list[str]
) -> None:
    compare(*small[kind], texts)


@pytest.mark.parametrize("name", SHIPPED)
@given(st.lists(ANY | KNOWN, min_size=1, max_size=4))
def test_any_text_by_shipped_models(
    shipped: dict[str, tuple[Predictor, Any]], name: str, texts: list[str]
) -> None:
    compare(*shipped[name], texts)


@pytest.mark.parametrize("name", SHIPPED)
def test_real_text_by_shipped_models(
    shipped: dict[str, tuple[Predictor, Any]], name: str, data_dir: Path
) -> None:
    with gzip.open(data_dir / "langid/udhr2/udhr2.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:3000] for line in file]
    with gzip.open(data_dir / "langid/lingua_testdata/lingua_test.jsonl.gz", "rt", encoding="utf-8") as file:
        texts += [json.loads(line)["text"] for line in file][::9]
    assert len(texts) > 2000
    compare(*shipped[name], texts)


def test_ranges_of_the_same_words_stand_alone(shipped: dict[str, tuple[Predictor, Any]]) -> None:
    model, _ = shipped["quality.ftz"]
    words = words_of([PROSE.lower()])
    count = len(words.starts)
    ranges = np.array([[0, count], [5, 25], [25, count], [7, 7]])
    apart = words_of([" ".join(PROSE.lower().split()[a:b]) for a, b in ranges.tolist()])
    ids = model.known(words)
    assert ids.max() > 0
    assert (
        model.probability(words, ranges, "prose", ids) == model.probability(apart, apart.bounds, "prose")
    ).all()


def test_a_matrix_too_large_to_expand_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, xxh3 = SHIPPED[0], fasttext_model.shipped(SHIPPED[0]).xxh3
    path = str(fasttext_model.MODELS / name)
    expanded = predictor.load(path, xxh3)
    monkeypatch.setattr("corpusmill.pipeline.filter.classifiers.model_file.EXPANDED", 1000)
    arrays, labels = read_model(Path(path))
    assert len(arrays.codes) == 50_000 and len(arrays.rows) == 0 and arrays.numbers.eos >= 0
    assert arrays.numbers.max_n == 4
    words = words_of([PROSE, "Der Fluss entspringt in den Bergen", "这条河发源于城市北部的山丘"])
    coded = Predictor(predictor._summed(arrays), labels)
    assert (
        np.abs(coded.probabilities(words, words.bounds) - expanded.probabilities(words, words.bounds)).max()
        < 1e-5
    )


@compiled
def _rest_of(h: Any, bucket: Any) -> Any:
    return remainder(h, bucket, 1.0 / bucket)


@given(st.integers(1 << 14, 1 << 31), st.integers(0, (1 << 64) - 1), st.integers(-2, 2))
def test_remainders_without_a_division(bucket: int, number: int, near: int) -> None:
    """Of any number, of one beside a multiple, and of the largest."""
    multiple = min(max(number // bucket * bucket + near, 0), (1 << 64) - 1)
    for one in (number, multiple, (1 << 64) - 1 - number % 3):
        assert _rest_of(np.uint64(one), np.int64(bucket)) == one % bucket
