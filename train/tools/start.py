"""The weights that a run starts from (`init_from`): those of a checkpoint of another run, its adapter merged, or of a model in
the Hugging Face layout."""

from __future__ import annotations

from typing import Literal

import torch

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import vocabulary
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.splits import checkpoint_at, load_model
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim.make import rate_at
from corpusmill.train.run_folder import DATA, TOKENIZER, open_run
from corpusmill.train.tools.hugging_face import CONFIG, load_weights, read_json

# Keys of a model's config that change nothing of what its weights are.
FREE = ("preset", "dropout", "z_loss", "loss_chunk", "rope_scaling", "mtp_weight")
Step = int | Literal["stable"] | None


@torch.no_grad()
def load_start(
    model: Decoder, folder: Folder, tokenizer: bytes, step: Step = None
) -> tuple[TrainConfig, checkpoint.Checkpoint] | None:
    """Load the weights in `folder`; returns the run's config and the checkpoint that they are of, None of a model that is no run's.
    All processes together. `step`: see `corpusmill.schemas.continual.StartConfig`.

    Raises `UserError` naming the keys in which its model differs from this one, if its tokenizer numbers tokens differently from
    `tokenizer`, or if it has no such checkpoint; and what `load_weights` raises.
    """
    if model.config.reward_head and not _is_reward_model(folder):
        return _below_new_head(model, folder, tokenizer, step)
    if not (folder / DATA).exists():
        if step is not None:
            raise UserError(f"init_from.step: {folder} is no run's folder: leave step out")
        load_weights(model, folder, tokenizer)
        return None
    config, run = open_run(folder.url)
    theirs, ours = config.model.model_dump(), model.config.model_dump()
    lines = [
        f"model.{key} is {theirs.get(key)} there and {ours.get(key)} here"
        for key in {**ours, **theirs}
        if key not in FREE
        and theirs.get(key) != ours.get(key)
        and (key, ours.get(key)) != ("mtp", None)  # layers for further tokens may be left behind
    ]
    if lines:
        raise UserError(f"init_from: {folder}: is another model than the config's: {'; '.join(lines)}")
    if vocabulary((run / TOKENIZER).read()) != vocabulary(tokenizer):
        raise UserError(
            f"init_from: {run / TOKENIZER}: is not the tokenizer of the data; make shards with it, or start from another model"
        )
    if config.adapter is not None and config.adapter.virtual:
        raise UserError(
            f"init_from: {folder}: trained virtual tokens, which no weights stand for: name the model that its init_from names"
        )
    wanted = newest_stable(config, run) if step == "stable" else step
    found = checkpoint_at(run, wanted, "init_from.step")
    whole = load_model(
        config, found, model.vocab_size, model.embedding.weight.device, rewards=True, masked=True
    )
    here, there = model.state_dict(), whole.state_dict()
    model.load_state_dict(
        {name: value for name, value in there.items() if name in here or not name.startswith("mtp.")}
    )
    return config, found


def _is_reward_model(folder: Folder) -> bool:
    return (folder / DATA).exists() and open_run(folder.url)[0].model.reward_head


def _below_new_head(
    model: Decoder, folder: Folder, tokenizer: bytes, step: Step
) -> tuple[TrainConfig, checkpoint.Checkpoint] | None:
    """Load all of a model that predicts tokens but its head, into a reward model, whose head keeps its first values."""
    if (folder / DATA).exists():
        tied = open_run(folder.url)[0].model.tie_embeddings
    else:
        tied = bool(read_json(folder / CONFIG).get("tie_word_embeddings", False))
    plain = model.config.model_copy(update={"reward_head": False, "tie_embeddings": tied})
    whole = Decoder(plain, model.vocab_size)
    origin = load_start(whole, folder, tokenizer, step)
    model.load_state_dict({**whole.state_dict(), "head.weight": model.state_dict()["head.weight"]})
    return origin


def newest_stable(config: TrainConfig, run: Folder) -> int:
    """The newest step with a checkpoint that had the full learning rate. Raises `UserError` if there is none."""
    there, rate = list(checkpoint.steps(run)), config.optimizer.lr
    stable = [step for step in there if rate_at(config, step) >= rate * (1 - 1e-9)]
    if not stable:
        raise UserError(
            f"init_from.step: stable: no checkpoint of {run} ({', '.join(map(str, there)) or 'none'}) had the full learning rate"
            f" {rate:g}: name a step, and set schedule.warmup_from to the rate that it had"
        )
    return stable[-1]
