"""Validation splits: windows that overlap score what they say, and figures name how they were measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.evaluate.documents import document_losses, kept
from corpusmill.train.evaluate.report.page import PAGE
from corpusmill.train.evaluate.statistics import estimate, linearised
from corpusmill.train.trainer import train
from tests.train.conftest import EOS
from tests.train.evaluate.compare.test_compare import scorer_of
from tests.train.test_commands import command

LENGTH = 24


@pytest.mark.parametrize("stride", [1, 7, 23])
def test_with_a_stride_each_token_has_the_context_of_its_window(
    shards: Folder, config: Callable[..., dict[str, Any]], stride: int
) -> None:
    """Against each token alone: the first window holds LENGTH tokens, the next ones begin `stride` tokens later, and documents do not
    see each other."""
    scorer = scorer_of(config)
    model, source = scorer.model.parts[0], open_shards(shards.url).validation["code"]
    found = document_losses(scorer, source, 3, stride)
    wanted = []
    for block in all_blocks(source):
        losses = []
        ends = [*block.starts[1:].tolist(), len(block.tokens)]
        for start, end in zip(block.starts.tolist(), ends, strict=True):
            for at in range(start, end):
                window = max(0, math.ceil((at - LENGTH + 1) / stride)) * stride
                first = max(start, window)
                row = [EOS if first == 0 else int(block.tokens[first - 1]), *map(int, block.tokens[first:at])]
                with torch.no_grad():
                    losses.append(
                        -float(model(torch.tensor([row]))[0, -1].log_softmax(-1)[int(block.tokens[at])])
                    )
        wanted += np.add.reduceat(losses, block.starts).tolist()
    assert found["nats"].to_pylist() == pytest.approx(wanted, rel=1e-4)
    plain = document_losses(scorer, source, 3)
    assert found["tokens"] == plain["tokens"] and found["nats"] != plain["nats"]
    assert document_losses(scorer, source, 3, LENGTH) == plain


def test_figures_have_intervals_over_documents_and_name_window_and_stride(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    file, run = write_config(**{"schedule.steps": 8}), Folder(tmp_path / "run")
    train(load(TrainConfig, file))
    arguments = ("evaluate", file, "--ngram-tokens", "0")
    result = json.loads(command(*arguments, "--json"))
    assert (result["window"], result["stride"], result["end_of_document"]) == (LENGTH, LENGTH, "scored")
    tables, values, squares = kept(run), [], []
    for name, row in result["sources"].items():
        bits, size = tables[name]["nats"].to_numpy() / math.log(2), tables[name]["bytes"].to_numpy()
        by_hand = estimate(linearised(bits, size), proportion=False)
        assert Estimate.model_validate(row["interval"]) == by_hand
        assert by_hand.value == pytest.approx(row["bits_per_byte"]) and by_hand.n == len(bits)
        values.append(by_hand.value)
        squares.append((by_hand.se or 0) ** 2)
    together = result["all_sources"]
    assert together["interval"]["value"] == pytest.approx(together["bits_per_byte"])
    mean = result["macro"]["interval"]
    assert mean["value"] == pytest.approx(np.mean(values)) and result["macro"]["sources"] == len(values)
    assert mean["se"] == pytest.approx(math.sqrt(sum(squares)) / len(values))
    assert mean["low"] < mean["value"] < mean["high"]

    more = json.loads(command(*arguments, "--json", "--stride", "6"))
    assert (more["window"], more["stride"]) == (LENGTH, 6) and more["of"] != result["of"]
    printed = command(*arguments, "--stride", "6")
    assert "rows of 24 tokens, one every 6; ends of documents are scored" in printed
    assert f"| {mean['value']:.3f}" not in printed and "| mean of sources | " in " ".join(printed.split())
    page = (run / PAGE).read().decode()
    assert "Rows of 24 tokens, one every 6" in page and "each counting the same" in page
    with pytest.raises(UserError, match=r"--stride: must be 1 to 24 \(data.sequence_length\), is 25"):
        command(*arguments, "--stride", "25")
    with pytest.raises(UserError, match="--stride: is of validation splits"):
        command(*arguments, "--stride", "5", "--tasks", "blimp")
