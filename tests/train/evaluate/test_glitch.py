"""Tokens that never occur are listed, exactly those, with figures equal to direct computation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.storage import Folder
from corpusmill.schemas.glitch import GlitchTokens
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.evaluate.glitch import distances, glitch_tokens
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import train
from tests.train import conftest
from tests.train.conftest import EOS, VOCAB, write_shards
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]
NEVER, ONCE = [17, 42, 63], 77


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Shards without the tokens NEVER; ONCE occurs in one place of one source."""
    made = conftest.document_tokens
    left = [True]

    def without(rng: np.random.Generator, size: int, flavour: int) -> tuple[list[int], list[int]]:
        tokens, starts = made(rng, size, flavour)
        kept = [token + 1 if token in NEVER else 78 if token == ONCE else token for token in tokens]
        if left[0] and flavour == 1:
            kept[starts[1] + 1], left[0] = ONCE, False
        return kept, starts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conftest, "document_tokens", without)
        return write_shards(Folder(tmp_path_factory.mktemp("glitch") / "shards"))


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def finished(shards: Folder, config: Make, request: pytest.FixtureRequest) -> tuple[TrainConfig, Folder]:
    settings = {
        "data.shards": shards.url, "schedule.steps": 40, "optimizer.lr": 1e-2, "model.tie_embeddings": request.param,
        "data.sequence_length": 24,
    }  # fmt: skip
    made = TrainConfig.model_validate(config(**settings))
    train(made)
    return open_run(made.output_url)


def test_exactly_the_tokens_that_never_occur_are_listed(finished: tuple[TrainConfig, Folder]) -> None:
    found = glitch_tokens(*finished)
    config, run = finished
    shards = open_shards(config.data.shards)
    every = np.concatenate([block.tokens for source in shards.train.values() for block in all_blocks(source)])
    counts = np.bincount(every, minlength=VOCAB)
    listed = {row.token: row for row in found.tokens}
    assert set(NEVER) == set(np.flatnonzero(counts == 0)) and counts[ONCE] == 1
    # What occurs may still not have been drawn in 40 steps; what never occurs is listed whatever was drawn.
    assert set(NEVER) <= set(listed) <= {*NEVER, ONCE}
    assert all(listed[token].train == listed[token].seen == 0 for token in NEVER)
    assert found.counted == found.trained > 0 and found.vocabulary == VOCAB
    assert GlitchTokens.from_json((run / "evaluation/glitch-tokens.json").read(), "") == found


def test_figures_are_those_of_the_weights(finished: tuple[TrainConfig, Folder]) -> None:
    config, run = finished
    found = glitch_tokens(config, run, most_seen=10**9, documents=1)
    assert len(found.tokens) == VOCAB and found.suspects == []
    model = load_model(config, newest_checkpoint(run), VOCAB, torch.device("cpu"))
    rows = (model.embedding if model.head is None else model.head).weight[:VOCAB].detach().double().numpy()
    assert found.tied == (model.head is None)
    seen = np.array([row.seen for row in found.tokens])
    # The first singular vector by power iteration, and each row without its part along it.
    common = np.ones(rows.shape[1])
    for _ in range(5000):
        common = rows.T @ (rows @ common)
        common /= np.linalg.norm(common)
    left = rows - (rows @ common)[:, None] * common
    mean = left[seen == 0].mean(0)
    for row in found.tokens:
        own = left[row.token]
        wanted = 1 - own @ mean / (np.linalg.norm(own) * np.linalg.norm(mean))
        assert row.distance == pytest.approx(wanted, abs=1e-5)
        assert row.input_norm == pytest.approx(
            float(model.embedding.weight[row.token].detach().norm()), rel=1e-6
        )
        assert (row.output_norm is None) == found.tied
        with torch.no_grad():
            chances = [
                float(model(torch.tensor([[EOS, *[row.token] * n]]))[0, -1].softmax(-1)[row.token])
                for n in (4, 8, 16)
            ]
        assert row.repeat == pytest.approx(max(chances), rel=1e-3) and row.repeats == (row.repeat >= 0.01)
    # Rows that were never a label are alike, and unlike the others.
    distance = np.array([row.distance for row in found.tokens])
    assert distance[seen == 0].max() < np.median(distance[seen > 20])


def test_documents_that_hold_a_token_are_named(finished: tuple[TrainConfig, Folder]) -> None:
    config, run = finished
    found = glitch_tokens(config, run, most_seen=10**9, documents=2)
    row = next(row for row in found.tokens if row.token == ONCE)
    shards = open_shards(config.data.shards)
    [place] = row.documents
    assert place.source == "books" and row.train == 1
    source = shards.train["books"]
    number = next(n for n, (_, block) in enumerate(source.blocks) if block.key == place.block)
    block = list(all_blocks(source))[number]
    at = int(np.flatnonzero(block.tokens == ONCE)[0])
    from corpusmill.train.data.fetch import Blocks

    member = Blocks([source]).documents((0, number))
    assert place.doc_id == member.doc_ids[int(np.searchsorted(block.starts, at, "right")) - 1]
    for row in found.tokens:
        assert len(row.documents) == min(len(row.documents), 2) and bool(row.documents) == (row.train > 0)
        assert len({(p.doc_id, p.block) for p in row.documents}) == len(row.documents)


def test_the_command_prints_and_writes(finished: tuple[TrainConfig, Folder], tmp_path: Path) -> None:
    printed = command("glitch-tokens", str(tmp_path / "run"))
    assert "tokens seen at most 0 times" in printed and "never trained on" in printed
    result = json.loads(command("glitch-tokens", str(tmp_path / "run"), "--documents", "0", "--json"))
    assert {row["token"] for row in result["tokens"]} >= set(NEVER)
    assert all(row["documents"] == [] for row in result["tokens"])
    assert [row["text"] for row in result["tokens"] if row["token"] == 17] == [chr(0x100 + 17)]
    # Tokens of letters above ASCII: each is its own text.
    assert all(row["reachable"] for row in result["tokens"])


def test_without_untouched_rows_there_is_no_distance() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    assert distances(rows, np.zeros(5, dtype=bool)) is None
    found = distances(rows, np.array([True, False, False, False, False]))
    assert found is not None and found[0] == pytest.approx(0)
