"""transformers: a Llama's loss on unshifted labels is the one of ours, and its Trainer reads each sequence once."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from corpusmill.common.storage import Folder
from tests.forks import launch
from tests.train.data.loops.parts import BATCH, answers, stream, use

SHAPES: dict[str, dict[str, Any]] = {
    "windows": {},
    "best fit": {"packing": "best_fit"},
    "across documents": {"cross_documents": True},
}


def llama(**options: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, **options,
        )
    )  # fmt: skip


def losses(foreign: str, shards: str) -> None:
    """By packing and attention: the loss of our labels, each document fed to the model alone, and the model's own of a batch, as
    it is and with all rows in one."""
    use(foreign)
    found = {}
    for attention in ("sdpa", "eager"):
        model = llama(use_cache=False, attn_implementation=attention)
        for shape, options in SHAPES.items():
            ours, theirs = (
                next(stream(shards, shift_labels=shifted, **options)) for shifted in (True, False)
            )
            total = torch.zeros(())
            for row, documents in enumerate(ours["documents"]):
                for document in documents.unique():
                    here = documents == document
                    logits = model(input_ids=ours["tokens"][row, here][None]).logits[0]
                    total = total + cross_entropy(logits, ours["labels"][row, here], reduction="sum")
            in_one_row = {name: tensor.reshape(1, -1) for name, tensor in theirs.items()}
            found[f"{shape}, {attention}"] = {
                "alone": float(total / ours["labels"].numel()), "whole": float(model(**theirs).loss),
                "in one row": float(model(**in_one_row).loss), "documents": int(ours["documents"].max()) + 1,
            }  # fmt: skip
    print(json.dumps(found))


def test_the_loss_of_a_model_that_shifts_labels_is_ours(shards: Folder, foreign: str) -> None:
    [found] = answers(launch(1, f"{__name__}:losses", foreign, shards.url))
    assert len(found) == 6
    for case, losses in found.items():
        assert losses["whole"] == pytest.approx(losses["alone"], rel=1e-6), case
        # as flash attention needs it to keep documents apart
        assert losses["in one row"] == pytest.approx(losses["alone"], rel=1e-6), case
        assert (losses["documents"] > 1) == ("across" not in case)


def train(foreign: str, shards: str, folder: str) -> None:
    """The rows of input ids that the model gets, by how it reads them, and the losses that the Trainer logs. Three steps of a
    global batch each, and two after an interruption."""
    use(foreign)
    from transformers import Trainer, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    found: dict[str, Any] = {}

    def fit(
        name: str, data: Any, resume: bool = False, steps: int = 3, own: Any = None, **options: Any
    ) -> None:
        model, seen = llama(), found.setdefault(name, [])
        model.register_forward_pre_hook(
            lambda module, args, given: seen.extend(given["input_ids"].tolist()), with_kwargs=True
        )
        arguments = TrainingArguments(
            f"{folder}/{name}", use_cpu=True, report_to=[], logging_steps=1, disable_tqdm=True, save_steps=3,
            max_steps=steps, **{"per_device_train_batch_size": BATCH // world, **options},
        )  # fmt: skip
        trainer = Trainer(model=model, args=arguments, train_dataset=data)
        if own is not None:
            trainer.get_train_dataloader = lambda: own
        trainer.train(resume_from_checkpoint=resume or None)
        found[f"losses, {name}"] = [row["loss"] for row in trainer.state.log_history if "loss" in row]

    first = next(stream(shards, shift_labels=False))
    found["first loss"] = float(llama(use_cache=False)(**first).loss)
    fit("read again", stream(shards, shift_labels=False).sequences())
    fit("read again", stream(shards, shift_labels=False).sequences(), resume=True, steps=5)
    fit("continued", stream(shards, shift_labels=False).sequences())
    later = stream(shards, shift_labels=False)
    later.load_state_dict({**later.state_dict(), "n": 3 * BATCH})
    fit("continued", later.sequences(), resume=True, steps=5, ignore_data_skip=True)
    part = stream(shards, shift_labels=False, dp_rank=rank, dp_world=world)
    fit("own loader", None, own=DataLoader(part, batch_size=None))
    half = {"per_device_train_batch_size": BATCH // world // 2, "gradient_accumulation_steps": 2}
    fit("accumulated", stream(shards, shift_labels=False).sequences(), **half)
    if world == 1:
        fit("workers", stream(shards, shift_labels=False).sequences(), dataloader_num_workers=1)
    print(json.dumps(found))


@pytest.mark.parametrize("processes", [1, 2])
def test_trainer(shards: Folder, foreign: str, tmp_path: Path, processes: int) -> None:
    ranks = answers(launch(processes, f"{__name__}:train", foreign, shards.url, tmp_path))
    rows = [batch["input_ids"] for batch in islice(stream(shards, shift_labels=False), 5)]
    share = BATCH // processes
    wanted = [
        torch.cat([batch[rank * share : (rank + 1) * share] for batch in rows]).tolist()
        for rank in range(processes)
    ]
    for found, mine in zip(ranks, wanted, strict=True):
        assert found["read again"] == found["continued"] == mine
        assert found["own loader"] == mine[: 3 * share]
        # of a step, the first micro-batches of all processes come before the second ones
        assert processes == 2 or found["accumulated"] == mine[: 3 * share]
        assert "workers" not in found or found["workers"] == mine[: 3 * share]
    accumulated = [row for found in ranks for row in found["accumulated"]]
    assert sorted(accumulated) == sorted(row for mine in wanted for row in mine[: 3 * share])
    losses = ranks[0]["losses, read again"]
    assert losses[0] == pytest.approx(ranks[0]["first loss"], rel=1e-5)  # the Trainer keeps documents apart
    for way in ("own loader", "accumulated", "continued"):
        assert ranks[0][f"losses, {way}"][:3] == pytest.approx(losses[:3], rel=1e-5), way
    assert ranks[0]["losses, continued"] == pytest.approx(losses, rel=1e-5)
