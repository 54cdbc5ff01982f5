"""The models and cases of bench/train_gpu.py, what they compute and what they are estimated to need."""

from __future__ import annotations

from typing import Any, NamedTuple


class Model(NamedTuple):
    """Sizes of a decoder in Llama's form, heads of 64; `rows` sequences of `length` make a step; micro-batches `micro` to try."""

    dim: int
    layers: int
    heads: int
    length: int
    rows: int
    micro: tuple[int, ...]
    vocabulary: int = 50_257


MODELS = {
    "124m": Model(768, 12, 12, 1024, 512, (32, 64, 128)),
    "350m": Model(1024, 24, 16, 1024, 256, (16, 32, 64)),
    "774m": Model(1280, 36, 20, 1024, 128, (8, 16, 32)),
    "1.5b": Model(1600, 48, 25, 2048, 64, (4, 8, 16)),
    "tiny": Model(64, 2, 2, 32, 4, (1, 2), 300),  # --smoke
}


class Case(NamedTuple):
    """`loop`: train, plain or torchtitan. `micro` None: find it. `compile`: a backend, or "" for none."""

    model: str
    loop: str = "train"
    precision: str = "bf16"
    optimizer: str = "adamw"
    compile: str = "inductor"
    data: str = "device"
    attention: str = "default"
    micro: int | None = None
    device: str = "cuda"
    seconds: float = 8.0
    profile: bool = False


class NotHere(Exception):
    """Why a case cannot be measured on this machine."""


def model_keys(size: Model) -> dict[str, Any]:
    """The `model` section of a training config."""
    return {"dim": size.dim, "layers": size.layers, "heads": size.heads}


def flops_per_token(size: Model) -> float:
    """By the formula of `corpusmill.train.model.flops`, the same for every loop: it is the same model."""
    import torch

    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.decoder import Decoder

    with torch.device("meta"):
        model = Decoder(ModelConfig.model_validate(model_keys(size)), size.vocabulary)
    return model.flops_per_token(size.length)


def estimate(case: Case, micro: int) -> float:
    """The peak that `corpusmill estimate` computes, bytes."""
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.tools.estimate.layout import Layout, shape_of
    from corpusmill.train.tools.estimate.memory import Work, memory

    size = MODELS[case.model]
    shape = shape_of(ModelConfig.model_validate(model_keys(size)), size.vocabulary)
    optimizer = OptimizerConfig.model_validate({"kind": case.optimizer})
    work = Work(
        micro, size.length, size.rows, optimizer, case.precision, cpu=case.device == "cpu",
        compiled=bool(case.compile),
    )  # fmt: skip
    return memory(shape, Layout(), work).total
