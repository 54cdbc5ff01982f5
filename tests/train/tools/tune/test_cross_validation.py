"""`cross-validate`: as many runs as folds, figures of held-out documents alone, and what it writes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.cross_validation import CROSS_VALIDATION, CrossValidation, FoldResult
from corpusmill.schemas.data import FoldConfig
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import estimate
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.tune.cross_validation import over_folds, summed
from tests.train.conftest import EOS, VOCAB
from tests.train.data.test_folds import held_documents, write_ledger
from tests.train.test_commands import command


def test_each_fold_is_scored_by_a_run_without_it(
    write_config: Callable[..., Path], shards: Folder, tmp_path: Path
) -> None:
    clusters = write_ledger(tmp_path / "ledger", open_shards(shards.url))
    file = write_config(**{"schedule.steps": 12})
    arguments = ("cross-validate", str(file), "--folds", "2", "--ledger", str(tmp_path / "ledger"))
    result = CrossValidation.model_validate(json.loads(command(*arguments, "--json")))
    assert result == CrossValidation.from_json((Folder(tmp_path / "run") / CROSS_VALIDATION).read(), "")
    assert [one.index for one in result.folds] == [0, 1] and {one.step for one in result.folds} == {12}
    documents = sum(source.index.ndocs for source in open_shards(shards.url).train.values())
    assert sum(one.documents for one in result.folds) == documents
    values = [one.bits_per_byte.value for one in result.folds]
    assert result.bits_per_byte.value == pytest.approx(np.mean(values))

    for one in result.folds:  # copies are one unit, within a source and across
        fold = FoldConfig(of=2, index=one.index, ledger=str(tmp_path / "ledger"))
        held = held_documents(shards, fold)
        units = {clusters.get(document, document) for document in held}
        assert (one.bits_per_byte.n, one.bits_per_byte.clusters) == (len(held), len(units))
        assert len(units) < len(held) and one.sources["wiki"].clusters <= one.sources["wiki"].n

    one = result.folds[1]
    config, run = open_run(str(tmp_path / "run" / one.run))
    assert config.data.fold is not None and config.data.fold.index == 1
    model = load_model(config, newest_checkpoint(run), VOCAB, torch.device("cpu"))
    bits = size = 0.0
    source = open_run_data(config).train["code"]
    for block, held in zip(all_blocks(source), source.held or (), strict=True):
        ends = [*block.starts[1:].tolist(), len(block.tokens)]
        for start, end, out in zip(block.starts.tolist(), ends, held.tolist(), strict=True):
            if not out:
                continue
            size += 3 * (end - start)  # bytes of a token of these shards
            # Rows of 24 begin without context, as in training.
            edges = sorted({start, end, *(at for at in range(0, len(block.tokens), 24) if start < at < end)})
            for first, last in pairwise(edges):
                row = [
                    EOS if first == 0 else int(block.tokens[first - 1]),
                    *block.tokens[first : last - 1].tolist(),
                ]
                with torch.no_grad():
                    logits = model(torch.tensor([row]))[0]
                wanted = torch.from_numpy(block.tokens[first:last].astype(np.int64))[:, None]
                bits -= float(logits.log_softmax(-1).gather(1, wanted).sum()) / math.log(2)
    assert one.sources["code"].value == pytest.approx(bits / size, rel=1e-4)

    printed = command(*arguments)  # nothing is trained again
    assert "bits per byte of what each of 2 runs held out" in printed and printed.count("\n| ") == 4
    with pytest.raises(UserError, match="data.fold: is set by cross-validation"):
        command(*arguments, "--set", "data.fold.of=2", "--set", "data.fold.index=0")
    with pytest.raises(UserError, match="holds checkpoints of another config: data.fold.seed: 0 -> 1"):
        command(*arguments, "--seed", "1")
    assert load(TrainConfig, file).data.fold is None


def test_a_source_that_a_fold_lacks_is_named() -> None:
    def fold(index: int, *sources: str) -> FoldResult:
        found = estimate([2.0 + index, 3.0], proportion=False)
        own = dict.fromkeys(sources, found)
        return FoldResult(index=index, run="", step=1, documents=2, bytes=9, bits_per_byte=found, sources=own)

    found = summed("tiny", 3, 0, [fold(0, "books"), fold(1, "books", "rare"), fold(2, "books")])
    assert list(found.sources) == ["books"] and found.without == {"rare": [0, 2]}


def test_the_interval_over_folds_is_student_s() -> None:
    values = [2.0, 2.2, 2.1, 2.3, 1.9]
    found = over_folds(
        [Estimate(value=v, se=None, low=None, high=None, n=9, clusters=9, method="") for v in values]
    )
    half = 2.7764451 * np.std(values, ddof=1) / math.sqrt(5)  # 97.5 % quantile on 4 degrees of freedom
    assert found.value == pytest.approx(2.1) and found.high == pytest.approx(2.1 + half)
    assert (found.n, found.clusters, found.method) == (45, 5, "t over folds")
    many = over_folds(
        [Estimate(value=v % 2, se=None, low=None, high=None, n=9, clusters=9, method="") for v in range(40)]
    )
    half = (
        2.0227 * np.std([0, 1], ddof=0) * math.sqrt(40 / 39) / math.sqrt(40)
    )  # on 39; 1.96 is of infinitely many
    assert many.high == pytest.approx(0.5 + half, rel=1e-4)
