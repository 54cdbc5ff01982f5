"""The weights that a run starts from (`init_from`): those of another run's newest checkpoint, its adapter merged, or of a model in
the Hugging Face layout."""

from __future__ import annotations

import torch

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import vocabulary
from corpusmill.common.storage import Folder
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import DATA, TOKENIZER, open_run
from corpusmill.train.tools.hugging_face import load_weights

# Keys of a model's config that change nothing of what its weights are.
FREE = ("preset", "dropout", "z_loss", "loss_chunk", "rope_scaling")


@torch.no_grad()
def load_start(model: Decoder, folder: Folder, tokenizer: bytes) -> None:
    """Load the weights in `folder`. Raises `UserError` naming the keys in which its model differs from this one, or if its tokenizer
    numbers tokens differently from `tokenizer`, and what `load_weights` raises."""
    if not (folder / DATA).exists():
        load_weights(model, folder, tokenizer)
        return
    config, run = open_run(folder.url)
    theirs, ours = config.model.model_dump(), model.config.model_dump()
    lines = [
        f"model.{key} is {theirs[key]} there and {ours[key]} here"
        for key in ours
        if key not in FREE and theirs[key] != ours[key]
    ]
    if lines:
        raise UserError(f"init_from: {folder}: is another model than the config's: {'; '.join(lines)}")
    if vocabulary((run / TOKENIZER).read()) != vocabulary(tokenizer):
        raise UserError(
            f"init_from: {run / TOKENIZER}: is not the tokenizer of the data; make shards with it, or start from another model"
        )
    found = load_model(config, newest_checkpoint(run), model.vocab_size, model.embedding.weight.device)
    model.load_state_dict(found.state_dict())
