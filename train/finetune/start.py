"""The whole model that a run with `init_from` starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.common.storage import Folder
from corpusmill.train.finetune.peft import load_adapter
from corpusmill.train.model.adapters import set_magnitudes, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig


def starting_model(config: TrainConfig, vocab_size: int, tokenizer: bytes) -> Decoder:
    """The model of `config.init_from`, with the adapters of the config, new ones or those of `adapter.init_from`.

    Raises `UserError` and `WorkError` as `load_start` and `load_adapter` do.
    """
    assert config.init_from is not None
    model = Decoder(config.model, vocab_size)
    load_start(model, Folder(config.init_from), tokenizer)
    with_adapters(model, config.adapter, config.seed)
    if config.adapter is not None and config.adapter.init_from:
        load_adapter(model, Folder(config.adapter.init_from))
    else:
        set_magnitudes(model)
    return model
