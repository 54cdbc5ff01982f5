"""The bench of learning: the plain loop learns and is scored on every validation token; a config is fitted to a wall time; the
tables and the picture hold what was measured."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import _learning_variants, learning, plain_loop
from bench._learning_picture import picture
from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from tests.train.conftest import SOURCES, VOCAB, write_shards

OPTIONS = plain_loop.Options(layers=1, heads=2, width=16, block=16, batch=8, rate=1e-2, warmup=5, decay=None)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(Folder(tmp_path_factory.mktemp("data") / "shards")).url


@pytest.fixture
def config(shards: str, tmp_path: Path) -> str:
    tiny: dict[str, Any] = {
        "name": "tiny", "output": str(tmp_path / "unused"),
        "data": {
            "shards": shards, "weights": {"wiki": 1, "books": 1}, "sequence_length": 24, "global_batch": 8, "micro_batch": 4,
            "window_blocks": 2,
        },
        "model": {"dim": 16, "layers": 1, "heads": 2, "vocab_multiple": 8}, "optimizer": {"lr": 1e-2},
        "schedule": {"steps": 100, "warmup_steps": 20}, "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(tiny))
    return str(file)


def test_the_plain_loop_learns_and_counts_its_tokens(shards: str) -> None:
    found = plain_loop.run(shards, 1.5, 1, 0, points=2, sources=["wiki", "books"], options=OPTIONS)
    seconds, bits = zip(*found.curve, strict=True)
    assert len(found.curve) == 2 and 0.7 < seconds[0] < seconds[1] >= 1.5
    untrained = math.log2(VOCAB) / 3  # three bytes a token
    assert bits[1] < bits[0] < untrained
    assert found.tokens % (8 * 16) == 0
    assert found.tokens_per_second == pytest.approx(found.tokens / seconds[1], rel=0.05)


def test_it_scores_every_validation_token_over_the_bytes_of_the_text(shards: str) -> None:
    torch.manual_seed(0)
    model = plain_loop.Model(VOCAB, OPTIONS)
    with torch.no_grad():
        model.norm.weight.zero_()  # every token equally probable
    indexes = [source.index for source in open_shards(shards).validation.values()]
    tokens, size = sum(i.ntokens for i in indexes), sum(i.text_bytes for i in indexes)
    found = plain_loop.bits_per_byte(model, shards, 16)
    assert found == pytest.approx(tokens * math.log2(VOCAB) / size, rel=1e-5)


def test_it_reads_the_tokens_of_the_train_splits(shards: str) -> None:
    train = open_shards(shards).train
    found = plain_loop.training_tokens(shards, ["books", "code"])
    assert len(found) == train["books"].index.ntokens + train["code"].index.ntokens
    assert len(plain_loop.training_tokens(shards, None)) == sum(s.index.ntokens for s in train.values())


def test_the_model_is_causal_and_its_rate_is_nanogpt_s() -> None:
    torch.manual_seed(0)
    model = plain_loop.Model(VOCAB, OPTIONS)
    rows = torch.randint(0, VOCAB, (2, 17))
    other = rows.clone()
    other[:, 9:] = (other[:, 9:] + 1) % VOCAB
    with torch.no_grad():
        one, two = (model(x[:, :-1], x[:, 1:]) for x in (rows, other))
    assert torch.equal(one[:, :8], two[:, :8]) and not torch.allclose(one[:, 9:], two[:, 9:])

    defaults = plain_loop.Options()
    rates = [plain_loop.rate_at(defaults, n, 0.0) for n in range(3000)]
    assert rates[99] < defaults.rate == pytest.approx(max(rates)) and rates[0] > 0
    assert rates[2000:] == [defaults.floor] * 1000 and (np.diff(rates[100:2001]) <= 0).all()
    by_time = defaults._replace(decay=None)
    assert plain_loop.rate_at(by_time, 5000, 1.0) == defaults.floor
    decayed = plain_loop.adamw(model, defaults).param_groups
    assert sum(len(group["params"]) for group in decayed) == len(list(model.parameters()))
    assert decayed[1]["weight_decay"] == 0 and all(w.ndim == 1 for w in decayed[1]["params"])


def test_a_config_is_fitted_to_the_time_and_scored_at_its_checkpoints(config: str, shards: str) -> None:
    found = learning.ours(config, shards, 1.0, 1, 3, 3)
    seconds, bits = zip(*found.curve, strict=True)
    assert 2 <= len(found.curve) <= 3 and list(seconds) == sorted(seconds)
    assert found.tokens % (8 * 24) == 0 and found.parameters > 0
    assert bits[-1] < math.log2(VOCAB) / 3
    assert set(found.ngrams) == {
        f"{kind} of {which}"
        for kind in ("bigram", "trigram")
        for which in ("the tokens seen", "all train tokens")
    }
    assert found.ngrams["bigram of all train tokens"] <= found.ngrams["bigram of the tokens seen"] + 1e-9


def test_the_schedule_keeps_its_shape(config: str, shards: str, tmp_path: Path) -> None:
    made = learning.fitted(config, shards, 0.5, 1, 7, 4, str(tmp_path))
    assert made.seed == 7 and made.schedule.warmup_steps == pytest.approx(made.schedule.steps / 5, abs=1)
    assert -(-made.schedule.steps // made.checkpoint.every) <= 4
    assert made.checkpoint.every == made.log.every


RUNS = {
    "`a.yaml`": [
        learning.Run([(5.0, 2.5), (10.0, 2.0)], 100.0, 1_000_000, 1000, {"bigram of the tokens seen": 2.1}),
        learning.Run([(5.0, 2.6), (10.0, 2.2)], 100.0, 1_000_000, 1000, {"bigram of the tokens seen": 2.1}),
    ],
    learning.PLAIN: [learning.Run([(5.1, 2.9), (10.2, 2.4)], 300.0, 2_000_000, 3000, {})] * 2,
}  # fmt: skip


def test_the_tables_hold_means_and_intervals() -> None:
    lines = learning.table(RUNS)
    # 12.706 x 0.1414 / sqrt(2)
    assert lines[2] == "| `a.yaml` | 1.0 M | 100 | 0.00 M | 10 | 2.100 ± 1.271 | 2.000, 2.200 |"
    assert lines[3].endswith("| 2.400 ± 0.000 | 2.400, 2.400 |")
    assert lines[4] == "| bigram of the tokens seen by `a.yaml` | | | | | 2.100 ± 0.000 | 2.100, 2.100 |"
    assert learning.curves(RUNS)[2] == "| `a.yaml` | 2.550 at 5 s | 2.100 at 10 s |"
    assert learning.interval([3.0]) == (3.0, 0.0)


def test_the_picture_stands_alone() -> None:
    curves = {name: [run.curve for run in runs] for name, runs in RUNS.items()}
    drawn = ET.fromstring(picture(curves, learning.ngrams_of(RUNS)))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    kinds = [element.get("class") for element in drawn.iter() if element.tag.endswith("path")]
    assert kinds.count("seed") == 4 and kinds.count("mean") == 2 + 2  # curves, and their keys
    words = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"a.yaml", learning.PLAIN, "bigram of the tokens seen", "seconds of training"} <= set(words)


def test_what_is_measured_is_printed_and_drawn(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learning, "measure", lambda *given: given and RUNS)
    options = [
        "--shards",
        shards,
        "--picture",
        str(tmp_path / "a.svg"),
        "--seconds",
        "10",
        "--seeds",
        "4",
        "5",
    ]
    learning.main(options)
    printed = capsys.readouterr().out
    assert "10 s of training on 2 threads" in printed and "seeds 4, 5" in printed and "± 1.271" in printed
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert set(SOURCES) == set(open_shards(shards).train)


def test_variants_are_ranked_beside_the_config(
    config: str, shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"the config": [], "a rate that teaches nothing": ["optimizer.lr=1e-9"]}
    monkeypatch.setattr(_learning_variants, "VARIANTS", few)
    monkeypatch.setattr(learning, "alone", lambda function, *given: function(*given))
    first, *_, best, worst = _learning_variants.lines(config, shards, 0.5, 1, [1])
    assert "0 s of training on 1 threads, seeds 1" in first
    assert best.startswith("| the config |") and "|  |" in best
    assert worst.startswith("| a rate that teaches nothing |") and "| +" in worst


def test_every_variant_is_a_config() -> None:
    for settings in _learning_variants.VARIANTS.values():
        load(TrainConfig, learning.ROOT / learning.CONFIGS[0], settings)
