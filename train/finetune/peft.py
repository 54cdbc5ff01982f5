"""An adapter in PEFT's format, both ways: adapter_config.json and adapter_model.safetensors, with the names of the model's Hugging
Face layout, so that PEFT and what reads its files load it beside the exported base model.

Rows need no other order: that layout has the rows of q and k as this model has them (`corpusmill.train.tools.architecture`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.finetune.peft_virtual import (
    CONFIG,
    EMBEDDINGS,
    WEIGHTS,
    described_virtual,
    joined,
    load_virtual,
)
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import dtype_named, read_json, read_tensors

if TYPE_CHECKING:
    from corpusmill.schemas.adapter import AdapterConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.model.decoder import Decoder

PREFIX = "base_model.model."
# The end of a parameter's name, in PEFT's files and here.
ENDS = {"lora_A.weight": "lora_a", "lora_B.weight": "lora_b", "lora_magnitude_vector": "magnitude"}
# Keys that change what an adapter computes, and have to be empty: what they ask for is not to be had here.
EMPTY = (
    "rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication", "lora_bias", "fan_in_fan_out", "use_qalora",
    "alora_invocation_tokens", "trainable_token_indices", "target_parameters",
)  # fmt: skip
# First values for which PEFT changes the base model's weights too.
CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")


def export_adapter(config: TrainConfig, run: Folder, out: Folder, dtype: str = "float32") -> dict[str, Any]:
    """Write the adapter of a run's newest checkpoint to `out`; returns a summary. adapter_config.json is written last.

    Raises `UserError` for a run without an adapter, for a model whose layout PEFT's adapters of ours do not fit, or if `out` holds an
    adapter already.
    """
    from safetensors.torch import save

    if config.adapter is None:
        raise UserError(f"--format peft: {run} trained all weights; leave it out to write the model")
    number_type = dtype_named(dtype)
    if (out / CONFIG).exists():
        raise UserError(f"{out}: holds a {CONFIG} already; name an empty folder")
    base = config.start.run if config.start else None
    if config.adapter.virtual:
        found = newest_checkpoint(run)
        made = {EMBEDDINGS: joined(config.model, config.adapter, checkpoint.read_tensors(found))}
        about = described_virtual(config.model, config.adapter, base)
    else:
        names = names_of(config.model, config.adapter, run_vocabulary(config, run).vocab_size)
        found = newest_checkpoint(run)
        ours = checkpoint.read_tensors(found)
        made, about = (
            {theirs: ours[name] for theirs, name in names.items()},
            described(config.adapter, names, base),
        )
    tensors = {name: value.to(number_type).contiguous() for name, value in made.items()}
    (out / WEIGHTS).write(save(tensors, metadata={"format": "pt"}))
    write_json(out / CONFIG, about)
    size = sum(tensor.nbytes for tensor in tensors.values())
    return {"output": out.url, "step": found.step, "tensors": len(tensors), "bytes": size}


def names_of(model: ModelConfig, adapter: AdapterConfig, vocab_size: int) -> dict[str, str]:
    """The names of an adapter's tensors in PEFT's files -> those of our parameters.

    Raises `UserError` for models with learned positions: GPT-2's layout has q, k and v in one transposed weight; and with `mla`, whose
    rows have another order there.
    """
    if model.mla is not None:
        raise UserError(
            "model.mla: DeepSeek-V3's layout has rows of these products in another order, and adapters are written in ours; merge it:"
            " `corpusmill export` without --format"
        )
    if model.positions == "learned":
        raise UserError(
            "model.positions: learned: GPT-2's layout keeps q, k and v in one weight, and these adapters are of each; merge it:"
            " `corpusmill export` without --format"
        )
    if model.query_scale != 1:
        raise UserError(
            f"model.mup_base_head_dim: {model.mup_base_head_dim}: scales queries, and an adapter of them apart from their weights has no"
            " place for that; merge it: `corpusmill export` without --format"
        )
    return dict(_names(model, adapter, model.padded(vocab_size)))


def _names(model: ModelConfig, adapter: AdapterConfig, rows: int) -> Iterator[tuple[str, str]]:
    targets = adapter.targets_of(model)
    for part in architecture(model, rows, model.max_positions).parts:
        ours, _, kind = part.sources[0].rpartition(".")
        if kind == "weight" and ours.startswith("layers.") and ours.rpartition(".")[2] in targets:
            for end, name in ENDS.items():
                if name != "magnitude" or adapter.dora:
                    yield f"{PREFIX}{part.name.removesuffix('weight')}{end}", f"{ours}.{name}"


def described(adapter: AdapterConfig, names: dict[str, str], base: str | None) -> dict[str, Any]:
    """What adapter_config.json holds."""
    whole = adapter.alpha == int(adapter.alpha)
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": adapter.rank,
        "lora_alpha": int(adapter.alpha) if whole else adapter.alpha, "lora_dropout": 0.0,
        "target_modules": sorted({name.split(".")[-3] for name in names if name.endswith("lora_A.weight")}),
        "use_rslora": adapter.rslora, "use_dora": adapter.dora, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "init_lora_weights": True, "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": None,
        "layers_to_transform": None, "layers_pattern": None,
    }  # fmt: skip


@torch.no_grad()
def load_adapter(model: Decoder, folder: Folder) -> None:
    """Load the adapter in `folder` into a whole model that has adapters of the same shape.

    Raises `UserError` naming the keys in which its adapter_config.json differs from the config's adapter, and `WorkError` naming
    tensors that are missing, surplus or of another shape.
    """
    adapter = model.adapter
    assert adapter is not None
    about = read_json(folder / CONFIG, "an adapter in PEFT's format")
    if adapter.virtual:
        load_virtual(model, about, folder)
        return
    compare(adapter, about, folder)
    names = names_of(model.config, adapter, model.vocab_size)
    found = read_tensors(folder / WEIGHTS, names)
    parameters = dict(model.named_parameters())
    problems = [f"{name} is surplus" for name in found if name not in names]
    for theirs, ours in names.items():
        here = parameters[ours]
        if theirs not in found:
            problems.append(f"{theirs} is missing")
        elif found[theirs].shape != here.shape:
            problems.append(f"{theirs} is {tuple(found[theirs].shape)}, this adapter has {tuple(here.shape)}")
        else:
            here.copy_(found[theirs])
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise WorkError(f"{folder}: does not fit adapter: {'; '.join(problems[:5])}{more}")


def compare(adapter: AdapterConfig, found: dict[str, Any], folder: Folder) -> None:
    """Raise `UserError` if adapter_config.json describes another adapter, or one that computes what these do not."""
    wanted = {
        "peft_type": ("LORA", None), "bias": ("none", "none"), "r": (adapter.rank, 8), "lora_alpha": (adapter.alpha, 8),
        "use_rslora": (adapter.rslora, False), "use_dora": (adapter.dora, False),
    }  # fmt: skip
    lines = [
        f"{key} is {found.get(key, default)} there and {here} here"
        for key, (here, default) in wanted.items()
        if found.get(key, default) != here
    ]
    lines += [f"{key} is {found[key]} there, and has to be empty" for key in EMPTY if found.get(key)]
    first = found.get("init_lora_weights")
    if isinstance(first, str) and first.lower().startswith(CHANGING):
        lines.append(f"init_lora_weights is {first} there, which changes the base model's weights")
    if lines:
        raise UserError(f"{folder / CONFIG}: is another adapter than the config's: {'; '.join(lines)}")
