"""Virtual tokens in PEFT's format: one tensor, `prompt_embeddings`.

Of prompt tuning [tokens, dim]; of prefix tuning [tokens, layers x 2 x key-value heads x head size], keys before values in each layer, as
PEFT cuts it into a cache of keys and values behind the rotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpusmill.common.errors import UserError, WorkError
from corpusmill.train.tools.hugging_face import read_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.adapter import AdapterConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.decoder import Decoder

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
EMBEDDINGS = "prompt_embeddings"
PROMPT = "prompt_embedding"
TYPES = {"prompt": "PROMPT_TUNING", "prefix": "PREFIX_TUNING"}


def prefix_of(layer: int) -> str:
    return f"layers.{layer}.attention.prefix_embedding"


def joined(model: ModelConfig, adapter: AdapterConfig, ours: Mapping[str, Tensor]) -> Tensor:
    """PEFT's tensor, of our parameters by name."""
    if adapter.kind == "prompt":
        return ours[PROMPT]
    layers = torch.stack([ours[prefix_of(layer)] for layer in range(model.layers)])  # [layers, 2, K, N, D]
    return layers.permute(3, 0, 1, 2, 4).reshape(adapter.virtual, -1)


def described_virtual(model: ModelConfig, adapter: AdapterConfig, base: str | None) -> dict[str, Any]:
    """What adapter_config.json holds."""
    heads = model.key_value_heads if adapter.kind == "prefix" else model.heads
    more: dict[str, Any] = {
        "prompt_tuning_init": "RANDOM",
        "prompt_tuning_init_text": None,
        "tokenizer_name_or_path": None,
    }
    if adapter.kind == "prefix":
        more = {"encoder_hidden_size": heads * model.head_size, "prefix_projection": False}
    return {
        "peft_type": TYPES[adapter.kind], "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": True,
        "num_virtual_tokens": adapter.virtual, "num_transformer_submodules": 1, "num_layers": model.layers,
        "num_attention_heads": heads, "token_dim": heads * model.head_size if adapter.kind == "prefix" else model.dim, **more,
    }  # fmt: skip


@torch.no_grad()
def load_virtual(model: Decoder, about: Mapping[str, Any], folder: Folder) -> None:
    """Load virtual tokens into a whole model that has as many of the same kind.

    Raises `UserError` naming the keys of adapter_config.json (`about`) that differ, and `WorkError` for a tensor that does not fit.
    """
    adapter, config = model.adapter, model.config
    assert adapter is not None
    wanted = {"peft_type": TYPES[adapter.kind], "num_virtual_tokens": adapter.virtual}
    lines = [
        f"{key} is {about.get(key)} there and {here} here"
        for key, here in wanted.items()
        if about.get(key) != here
    ]
    if about.get("prefix_projection"):
        lines.append(
            "prefix_projection is set there: its tensors are those of a network that makes the prefix"
        )
    if lines:
        raise UserError(f"{folder / CONFIG}: is another adapter than the config's: {'; '.join(lines)}")
    parameters = dict(model.named_parameters())
    like = joined(config, adapter, parameters)
    found = read_tensors(folder / WEIGHTS, {EMBEDDINGS: None}).get(EMBEDDINGS)
    if found is None or found.shape != like.shape:
        there = "missing" if found is None else tuple(found.shape)
        raise WorkError(
            f"{folder}: does not fit adapter: {EMBEDDINGS} is {there}, this model has {tuple(like.shape)}"
        )
    if adapter.kind == "prompt":
        parameters[PROMPT].copy_(found)
        return
    shape = adapter.virtual, config.layers, 2, config.key_value_heads, config.head_size
    for layer, part in enumerate(found.view(shape).permute(1, 2, 3, 0, 4)):
        parameters[prefix_of(layer)].copy_(part)
