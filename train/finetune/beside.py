"""Opening adapters to generate with, beside one model: those of runs of ours, and those in PEFT's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.adapter import TARGETS, AdapterConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.finetune.peft import load_adapter
from corpusmill.train.finetune.peft_virtual import CONFIG
from corpusmill.train.generate.fused import Fused
from corpusmill.train.generate.low_rank import LowRank
from corpusmill.train.model.adapters import with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import DATA, open_run
from corpusmill.train.tools.hugging_face import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.train.generate.generate import Opened


def add_adapters(opened: Opened, folders: Sequence[str]) -> None:
    """Give an opened model, of which nothing was generated yet, the adapters in these folders, by numbers from 1 on. Their matrices lie
    beside its weights, which stay as they are.

    Raises `UserError` for a model whose form these are not written for, a folder that holds no adapter, and one that fits another model.
    """
    model = opened.runner.model
    if not Fused.fits(model.config):
        raise UserError(
            "--adapter: is for models of Llama's form (rmsnorm, rope, no biases or experts): merge it with `corpusmill export`"
        )
    models = [_with(model, Folder(one)) for one in folders]
    opened.runner.adapters = LowRank(models, opened.runner.dtype, opened.runner.folded)


def _with(model: Decoder, folder: Folder) -> Decoder:
    """A model with the weights of this one, which are not copied, and an adapter."""
    if (folder / DATA).exists():
        return _of_run(model, folder)
    found = _shared(
        model, adapter_of(read_json(folder / CONFIG, "a run's folder or an adapter in PEFT's format"), folder)
    )
    load_adapter(found, folder)
    return found


def _shared(model: Decoder, adapter: AdapterConfig) -> Decoder:
    with torch.device("meta"):
        found = Decoder(model.config, model.vocab_size)
    found.load_state_dict(model.state_dict(), assign=True)
    return with_adapters(found, adapter)


def _of_run(model: Decoder, folder: Folder) -> Decoder:
    config, run = open_run(folder.url)
    if config.adapter is None:
        raise UserError(f"--adapter {folder}: trained all weights: name it as the model")
    if config.adapter.virtual:
        raise UserError(
            f"--adapter {folder}: trained virtual tokens, no matrices beside weights: name it as the model"
        )
    if config.model.model_dump() != model.config.model_dump():
        raise UserError(f"--adapter {folder}: is of another model than this one")
    if config.adapter.quantise is not None:
        raise UserError(
            f"--adapter {folder}: was trained beside weights in {config.adapter.quantise}, which are not this model's: name it as the model"
        )
    found, saved = _shared(model, config.adapter), checkpoint.read_tensors(newest_checkpoint(run))
    parameters = dict(found.named_parameters())
    for name, value in saved.items():
        here = parameters[name]
        if here.requires_grad:
            with torch.no_grad():
                here.copy_(value)
        elif here.shape != value.shape or not torch.equal(here.cpu().float(), value.float()):
            raise UserError(
                f"--adapter {folder}: was trained beside other weights ({name}): name the run that its init_from names"
            )
    return found


def adapter_of(found: dict[str, Any], folder: Folder) -> AdapterConfig:
    """The adapter that PEFT's adapter_config.json describes. Raises `UserError` for one of modules that have none here."""
    kind = found.get("peft_type")
    if kind not in (None, "LORA"):
        raise UserError(f"{folder / CONFIG}: peft_type: is {kind}; adapters beside a model are LORA alone")
    names = found.get("target_modules")
    if not isinstance(names, list):
        raise UserError(f"{folder / CONFIG}: target_modules: must be a list of names such as q_proj")
    targets = [str(name).rpartition(".")[2].removesuffix("_proj") for name in names]
    unknown = [name for name, target in zip(names, targets, strict=True) if target not in TARGETS]
    if unknown:
        raise UserError(
            f"{folder / CONFIG}: target_modules: {unknown[0]} has no adapter here (allowed: {', '.join(TARGETS)} with _proj)"
        )
    given = {
        "rank": found.get("r", 8), "alpha": found.get("lora_alpha", 8), "rslora": bool(found.get("use_rslora")),
        "dora": bool(found.get("use_dora")), "targets": sorted(set(targets), key=TARGETS.index),
    }  # fmt: skip
    return validate(AdapterConfig, given, str(folder / CONFIG))
