"""What is measured of generation's speed, and that nothing ends early."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import SPEED, SpeedResults
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.report.page import PAGE, write
from corpusmill.train.generate import speed
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import open_model
from corpusmill.train.generate.product import Product
from corpusmill.train.generate.speed import FIRSTS, ROUNDS, WARM, Round, measure, one_round


def test_figures_add_up_and_are_on_the_page(reader: Path, tmp_path: Path) -> None:
    shutil.copytree(reader / "run", tmp_path / "run")
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(tmp_path / "run")
    found = measure(config, run, batches=(1, 3))
    assert found == SpeedResults.from_json((run / SPEED).read(), SPEED)
    assert (found.prompt_tokens, found.new_tokens) == (64, 96) and [b.batch for b in found.batches] == [1, 3]
    assert 0 < found.first_token_p50 <= found.first_token_p95 and found.memory_mib > 10
    for one in found.batches:
        assert one.prefill_tokens_per_second > one.decode_tokens_per_second > 1
        assert one.prefill_low <= one.prefill_tokens_per_second <= one.prefill_high
        assert one.decode_low < one.decode_tokens_per_second < one.decode_high
    write(config, run)
    page, one = (run / PAGE).read().decode(), found.batches[1]
    assert all(
        f"{round(n):,}" in page for n in (one.decode_tokens_per_second, one.decode_low, one.decode_high)
    )
    assert found.rounds == ROUNDS


def test_the_first_rounds_do_not_count(reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three, as memory is taken and caches are filled; the figures are medians of the others, between their lowest and highest."""
    shutil.copytree(reader / "run", tmp_path / "run")
    taken = iter([9.0, 9.0, 9.0, 1.0, 2.0, 4.0, 5.0, 8.0, *([1.0] * (WARM + FIRSTS))])
    monkeypatch.setattr(speed, "one_round", lambda *_: Round(1.0, next(taken)))
    found = measure(load(TrainConfig, reader / "config.yaml"), Folder(tmp_path / "run"), batches=(2,))
    (one,) = found.batches
    assert WARM == 3 and next(taken, None) is None
    tokens = 2 * (found.new_tokens - 1)
    assert (one.decode_low, one.decode_tokens_per_second, one.decode_high) == (tokens / 8, tokens / 4, tokens)


def test_a_round_generates_all_that_it_counts(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(load(TrainConfig, reader / "config.yaml"), Folder(reader / "run"))
    # A model that would end at once.
    runner, model = opened.runner, opened.runner.model
    head = (
        (model.embedding if model.head is None else model.head).weight[: runner.vocab_size].detach().clone()
    )
    head[runner.eos_id] = 100 * head.abs().max()
    runner.head = Product(head)
    made = list[int]()
    take = Engine.step

    def counted(engine: Engine) -> object:
        events = take(engine)
        made.extend(event.token for event in events if event.token is not None)
        return events

    monkeypatch.setattr(Engine, "step", counted)
    found = one_round(opened.runner, 4, 9, 7)
    assert len(made) == 28 and opened.runner.eos_id not in made
    assert found.prefill > 0 and found.decode > 0
