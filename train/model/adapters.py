"""The adapters of a decoder (`corpusmill.train.model.lora`): added to it, and merged into its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from corpusmill.train.model.attend import Boundaries
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import first_values, key
from corpusmill.train.model.layer import Attention
from corpusmill.train.model.lora import LoRALinear, changed_weight, row_norms

if TYPE_CHECKING:
    from corpusmill.schemas.adapter import AdapterConfig

ROW_PARALLEL = ("o", "down")  # targets whose inputs tensor parallelism splits


@torch.no_grad()
def with_adapters(model: Decoder, adapter: AdapterConfig | None, seed: int = 0) -> Decoder:
    """Give a decoder (or a part of one, perhaps on the meta device) the adapters of a config, and freeze all else; None: nothing
    is done. B is 0, so that the model computes what it did; DoRA's magnitudes are 1 until `set_magnitudes`, virtual
    tokens random until `set_virtual`."""
    if adapter is None:
        return model
    model.requires_grad_(False)
    model.adapter = adapter
    if adapter.virtual:
        _add_virtual(model, adapter)
    for layer in model.layers.values() if not adapter.virtual else ():
        for part in (layer.attention, layer.ffn):
            for target in adapter.targets_of(model.config):
                base = getattr(part, target, None)
                if isinstance(base, nn.Linear):
                    setattr(part, target, LoRALinear(base, adapter, target in ROW_PARALLEL))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.is_meta:
            shape, whole = parameter.shape, (slice(None),) * parameter.ndim
            values = first_values(
                name, shape, whole, seed, model.config.layers, model.vocab_size, parameter.device
            )
            parameter.copy_(values)
    return model


def _add_virtual(model: Decoder, adapter: AdapterConfig) -> None:
    """Parameters of virtual tokens, without values."""
    count, config = adapter.virtual, model.config
    device = next(model.parameters()).device
    if adapter.kind == "prefix":
        shape = 2, config.key_value_heads, count, config.head_size
        for attention in _attentions(model):
            attention.prefix_embedding = nn.Parameter(torch.empty(shape, device=device))
    elif model.first:
        model.prompt_embedding = nn.Parameter(torch.empty(count, config.dim, device=device))


def _attentions(model: Decoder) -> list[Attention]:
    return [module for module in model.modules() if isinstance(module, Attention)]


def virtual_tokens(model: Decoder) -> int:
    """How many a model has before each document."""
    return 0 if model.adapter is None else model.adapter.virtual


def adapted(model: nn.Module) -> dict[str, LoRALinear]:
    """A model's layers with an adapter, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)}


def held(model: nn.Module) -> str:
    """What holding weights as NF4 saves, to be put behind a line; empty without such weights."""
    linears = [linear for linear in adapted(model).values() if linear.quantised]
    before = sum(4 * linear.out_features * linear.in_features for linear in linears)
    after = sum(value.nbytes for linear in linears for value in (linear.codes, linear.scales, linear.factors))
    return (
        f"; its products' frozen weights take {after:,} bytes as NF4, {before:,} as float32"
        if linears
        else ""
    )


@torch.no_grad()
def set_magnitudes(model: Decoder) -> None:
    """Set DoRA's magnitudes to the norms that the rows of a whole model's weights have, with which it computes what it did."""
    for linear in adapted(model).values():
        if linear.magnitude is not None:
            linear.magnitude.copy_(
                row_norms(changed_weight(linear.values(), linear.lora_a, linear.lora_b, linear.scale))
            )


@torch.no_grad()
def set_virtual(model: Decoder, seed: int) -> None:
    """Give a whole model's virtual tokens the values that random words of the vocabulary have in front of a document: their embeddings,
    or their keys and values in each layer."""
    count = virtual_tokens(model)
    if not count:
        return
    device = model.embedding.weight.device
    chance = torch.Generator().manual_seed(key("virtual", seed))
    ids = torch.randint(model.vocab_size, (1, count), generator=chance).to(device)
    if model.prompt_embedding is not None:
        model.prompt_embedding.copy_(model.embedding.weight[ids[0]])
        return
    cache, attentions = _Seen(), _attentions(model)
    prefixes = [attention.prefix_embedding for attention in attentions]
    for attention in attentions:
        attention.prefix_embedding = None
    positions = torch.arange(count, device=device)[None]
    x = model.embed(ids, positions, None)
    first = None
    for layer in model.layers.values():
        x, _, values = layer(x, model.rotation(positions), Boundaries(cache=cache), ids, None, first)
        first = values if first is None else first
    for attention, prefix, seen in zip(attentions, prefixes, cache.seen, strict=True):
        assert prefix is not None
        prefix.copy_(torch.stack([value[0] for value in seen]))
        attention.prefix_embedding = prefix


class _Seen:
    """In place of a cache: notes the keys and values of each layer."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, ...]] = []

    def extend(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        self.seen.append(new)
        return new


@contextmanager
def adapters_off(models: Iterable[nn.Module]) -> Iterator[None]:
    """Within, models compute what their frozen weights alone do."""
    linears = [linear for model in models for linear in adapted(model).values()]
    for linear in linears:
        linear.active = False
    try:
        yield
    finally:
        for linear in linears:
            linear.active = True


def merge(model: Decoder) -> Decoder:
    """Replace a whole model's layers with an adapter, in place, by plain ones that compute the same; a model without any stays as it is,
    and one with virtual tokens, which no weights stand for."""
    if model.adapter is None or virtual_tokens(model):
        return model
    for path, linear in adapted(model).items():
        plain = nn.Linear(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(linear.merged()), linear.bias
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, plain)
    model.adapter = None
    model.requires_grad_(True)
    return model
