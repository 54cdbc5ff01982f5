"""How a training config fine-tunes with adapters: small matrices beside the model's frozen ones, which alone are trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from corpusmill.schemas.continual import StartConfig
    from corpusmill.schemas.data import DataConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.parallel import Precision

Target = Literal["q", "k", "v", "q_a", "q_b", "kv_a", "kv_b", "o", "gate", "up", "down"]
OF_MLA: tuple[Target, ...] = ("q_a", "q_b", "kv_a", "kv_b")
NF4_BLOCK = 64  # weights that share a scale
TARGETS: tuple[Target, ...] = get_args(Target)  # in the order of a layer


class AdapterConfig(Strict):
    """LoRA (Hu et al. 2021), rsLoRA (Kalajdzievski 2023) or DoRA (Liu et al. 2024), as PEFT computes them: a product with the
    weight W becomes one with W + scale B A, of which A [rank, in] and B [out, rank] alone are trained.

    With `kind` prompt or prefix it is `tokens` virtual tokens before each conversation (Lester et al. 2021; Li and Liang 2021), without
    the keys of LoRA."""

    kind: Literal["lora", "prompt", "prefix"] = Field(
        default="lora",
        exclude_if=lambda value: value == "lora",
        description="lora; or virtual tokens before each conversation, of which are trained: prompt: the embeddings; prefix: keys and"
        " values in every layer",
    )
    tokens: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda value: value is None,
        description="prompt, prefix: how many; they take places of data.sequence_length",
    )
    rank: int = Field(default=16, ge=1)
    alpha: float = Field(
        default=32.0, gt=0, description="scale = alpha / rank; with rslora alpha / sqrt(rank)"
    )
    rslora: bool = Field(
        default=False, description="the scale for which the rank does not change the size of updates"
    )
    dora: bool = Field(default=False, description="also trains the norm of each row of W + scale B A")
    targets: list[Target] | None = Field(
        default=None,
        min_length=1,
        description="matrix products of each layer that have an adapter; null: all of them (the head and the embeddings"
        " never have one)",
    )
    init_from: str | None = Field(
        default=None, description="folder or URL of an adapter in PEFT's format to start from"
    )

    quantise: Literal["nf4"] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="nf4: QLoRA (Dettmers et al. 2023): the frozen weights of the targets are held in 4 bits each; null: as they are",
    )

    @model_validator(mode="after")
    def once(self) -> AdapterConfig:
        named = self.targets or []
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise ValueError(f"targets: {twice[0]} is named twice: leave one of them out")
        return self

    @model_validator(mode="after")
    def of_its_kind(self) -> AdapterConfig:
        if self.kind == "lora":
            if self.tokens is not None:
                raise ValueError("tokens: kind lora has none: leave it out, or set kind to prompt or prefix")
            return self
        if self.tokens is None:
            raise ValueError(f"tokens: kind {self.kind} needs how many virtual tokens there are, such as 20")
        for name in ("rank", "alpha", "rslora", "dora", "targets", "quantise"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: kind {self.kind} has none: leave it out")
        return self

    @property
    def virtual(self) -> int:
        """Virtual tokens before each document."""
        return self.tokens or 0

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def targets_of(self, model: ModelConfig) -> tuple[Target, ...]:
        """The products of a layer of this model that have an adapter, in the order of `TARGETS`."""
        there = self._there(model)
        return tuple(name for name in there if self.targets is None or name in self.targets)

    @staticmethod
    def _there(model: ModelConfig) -> tuple[Target, ...]:
        """The products of a layer of this model."""
        missing = set[Target]() if model.activation == "swiglu" else {"gate"}
        if model.mla is None:
            missing |= set(OF_MLA)
        else:
            missing |= {"k", "v", *(("q_a", "q_b") if model.mla.q_rank is None else ("q",))}
        return tuple(name for name in TARGETS if name not in missing)

    def check(
        self, model: ModelConfig, precision: Precision, start: StartConfig | None, tensor: int = 1
    ) -> None:
        """Raises `ValueError`, with the key to change, for what no adapter can be trained with."""
        if start is None:
            raise ValueError(
                "it would be trained on random weights: set init_from to the folder of a model in the Hugging Face layout"
                " (`corpusmill export` writes one), or leave adapter out"
            )
        if start.optimizer:
            raise ValueError(
                "its parameters are new ones, of which init_from has no optimizer state: set init_from.optimizer to false"
            )
        if model.moe is not None and self.kind == "lora":
            raise ValueError(
                "model.moe keeps its experts in stacks, which adapters are not written for: leave out adapter or model.moe"
            )
        if model.mtp is not None:
            raise ValueError(
                "model.mtp trains layers that generation does not use: set it to null (init_from leaves them behind)"
            )
        if precision == "fp8":
            raise ValueError("precision fp8 rounds the frozen weights at every use: set precision to bf16")
        if "gate" in (self.targets or ()) and model.activation != "swiglu":
            raise ValueError(f"targets: model.activation {model.activation} has no gate: leave gate out")
        there = self._there(model)
        if missing := [name for name in self.targets or () if name not in there]:
            raise ValueError(
                f"targets: this model's layers have no {missing[0]}: leave it out (they have {', '.join(there)})"
            )
        if self.kind == "prefix" and model.mla is not None:
            raise ValueError(
                "kind: prefix trains keys and values, and with model.mla none are kept: take prompt or lora, or leave model.mla out"
            )
        if self.quantise is not None:
            self._check_blocks(model, tensor)

    def check_virtual(self, data: DataConfig, pipeline: int, other_loss: bool) -> None:
        """Virtual tokens take places in the rows of conversations, which no other model's tokens do. Raises `ValueError`, with the key to
        change. `other_loss`: whether the run minimises another loss than that of the next token."""
        if data.conversations is None or other_loss:
            raise ValueError(
                f"adapter.kind: {self.kind} is trained on the answers of conversations alone, for the next token: set"
                " data.conversations and leave objective, distillation and reinforcement out, or take kind lora"
            )
        if self.kind == "prompt" and pipeline > 1:
            raise ValueError(
                "adapter.kind: prompt: all that is trained is in the first stage: set parallel.pipeline to 1, or take kind prefix"
            )
        if 2 * self.virtual > data.sequence_length:
            raise ValueError(
                f"adapter.tokens: {self.virtual} are more than half of data.sequence_length {data.sequence_length}: lower them"
            )

    def _check_blocks(self, model: ModelConfig, tensor: int) -> None:
        """Of NF4, whose blocks of `NF4_BLOCK` weights lie along the inputs."""
        of_heads = ("model.heads x model.head_dim", model.heads * model.head_size, tensor)
        inputs = {"o": of_heads, "down": ("model.ffn_dim", model.hidden, tensor)}
        if model.mla is not None:
            inputs["o"] = ("model.heads x mla.value_head_dim", model.heads * model.mla.value_head_dim, tensor)
            inputs["q_b"] = ("model.mla.q_rank", model.mla.q_rank or 0, 1)
            inputs["kv_b"] = ("model.mla.kv_rank", model.mla.kv_rank, 1)
        for target in self.targets_of(model):
            key, size, parts = inputs.get(target, ("model.dim", model.dim, 1))
            if size % (NF4_BLOCK * parts):
                among = f" x parallel.tensor {parts}" if parts > 1 else ""
                raise ValueError(
                    f"quantise: {key} of {size}, the inputs of {target}, is no multiple of {NF4_BLOCK}{among}, the weights that share"
                    f" a scale: leave out quantise, or {target} of targets"
                )
