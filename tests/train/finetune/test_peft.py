"""PEFT's format: what is written by name, read again to the bit, and what other adapters are refused for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.finetune.peft import load_adapter, names_of
from corpusmill.train.finetune.start import starting_model
from corpusmill.train.model.adapters import with_adapters
from corpusmill.train.trainer import train
from tests.train.conftest import VOCAB, tokenizer_json
from tests.train.finetune.conftest import ADAPTER
from tests.train.finetune.test_start import weights
from tests.train.models import model_of
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("dora", [False, True])
def test_an_exported_adapter_is_where_another_run_starts(
    dora: bool, tuned: Make, tuned_file: Callable[..., Path], tmp_path: Path
) -> None:
    adapter = {**ADAPTER, "dora": dora, "targets": ["v", "q", "down"]}
    file = tuned_file(adapter=adapter)
    train(TrainConfig.model_validate(json.loads(file.read_text())))
    out = tmp_path / "adapter"
    count = 2 * 3 * (3 if dora else 2)
    assert (
        command("export", str(file), str(out), "--format", "peft")
        == f"{out}: the adapter of step 8, {count} tensors\n"
    )
    written = json.loads((out / "adapter_config.json").read_text())
    assert written["target_modules"] == ["down_proj", "q_proj", "v_proj"]
    assert (written["r"], written["lora_alpha"], written["use_dora"]) == (4, 8, dora)
    tensors, ours = load_file(out / "adapter_model.safetensors"), weights(tmp_path / "run", 8)
    key, name = "base_model.model.model.layers.1.self_attn.q_proj", "layers.1.attention.q"
    assert torch.equal(tensors[f"{key}.lora_A.weight"], ours[f"{name}.lora_a"])
    assert torch.equal(tensors[f"{key}.lora_B.weight"], ours[f"{name}.lora_b"])
    assert (f"{key}.lora_magnitude_vector" in tensors) == dora and len(tensors) == count
    second = TrainConfig.model_validate(tuned(adapter={**adapter, "init_from": str(out)}))
    model = starting_model(second, VOCAB, tokenizer_json())
    for name, value in model.state_dict().items():
        assert torch.equal(value, ours[name]), name
    with pytest.raises(UserError, match=r"holds a adapter_config\.json already"):
        command("export", str(file), str(out), "--format", "peft")


def test_a_run_without_an_adapter_has_none_to_export(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    file = write_config(**{"schedule.steps": 2, "schedule.warmup_steps": 1, "validation.every": None})
    train(TrainConfig.model_validate(json.loads(file.read_text())))
    with pytest.raises(UserError, match="--format peft: .* trained all weights"):
        command("export", str(file), str(tmp_path / "out"), "--format", "peft")


def folder_of(place: Path, adapter: AdapterConfig, more: dict[str, Any]) -> Folder:
    """An adapter as PEFT writes one, for the model of `model_of({})`."""
    place.mkdir(exist_ok=True)
    model = with_adapters(model_of({}), adapter, seed=9)
    parameters = dict(model.named_parameters())
    names = names_of(model.config, adapter, model.vocab_size)
    save_file(
        {theirs: parameters[ours].detach().clone() for theirs, ours in names.items()},
        place / "adapter_model.safetensors",
    )
    content = {
        "peft_type": "LORA", "r": adapter.rank, "lora_alpha": int(adapter.alpha), "use_rslora": adapter.rslora,
        "use_dora": adapter.dora, "bias": "none", "init_lora_weights": True, "rank_pattern": {}, "modules_to_save": None,
    }  # fmt: skip
    (place / "adapter_config.json").write_text(json.dumps({**content, **more}))
    return Folder(place)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"r": 8}, "r is 8 there and 4 here"),
        ({"lora_alpha": 16}, "lora_alpha is 16 there and 8.0 here"),
        ({"use_rslora": True}, "use_rslora is True there and False here"),
        ({"use_dora": True}, "use_dora is True there and False here"),
        ({"peft_type": "LOHA"}, "peft_type is LOHA there and LORA here"),
        ({"bias": "all"}, "bias is all there and none here"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern is {'q_proj': 2} there, and has to be empty"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is ['lm_head'] there, and has to be empty"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is pissa_niter_4 there, which changes"),
    ],
)  # fmt: skip
def test_another_adapter_is_refused_by_its_keys(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    adapter = AdapterConfig(rank=4, alpha=8.0)
    folder = folder_of(tmp_path / "adapter", adapter, more)
    with pytest.raises(UserError) as error:
        load_adapter(with_adapters(model_of({}), adapter), folder)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    adapter = AdapterConfig(rank=4, alpha=8.0)
    folder = folder_of(tmp_path / "adapter", adapter, {})
    model = with_adapters(model_of({}), adapter)
    load_adapter(model, folder)
    file = tmp_path / "adapter/adapter_model.safetensors"
    tensors, start = load_file(file), "base_model.model.model.layers"
    assert torch.equal(
        tensors[f"{start}.2.mlp.up_proj.lora_A.weight"], model.get_parameter("layers.2.ffn.up.lora_a")
    )
    del tensors[f"{start}.0.self_attn.o_proj.lora_B.weight"]
    tensors[f"{start}.0.self_attn.q_proj.lora_A.weight"] = torch.zeros(3, 32)
    tensors["base_model.model.lm_head.lora_A.weight"] = torch.zeros(4, 32)
    save_file(tensors, file)
    with pytest.raises(WorkError) as error:
        load_adapter(model, folder)
    for part in (
        "lm_head.lora_A.weight is surplus", "o_proj.lora_B.weight is missing",
        "q_proj.lora_A.weight is (3, 32), this adapter has (4, 32)",
    ):  # fmt: skip
        assert part in str(error.value)
    file.unlink()
    with pytest.raises(WorkError, match="no such file"):
        load_adapter(model, folder)
    (tmp_path / "adapter/adapter_config.json").unlink()
    with pytest.raises(UserError, match="is not an adapter in PEFT's format: it has no adapter_config"):
        load_adapter(model, folder)


def test_gpt2_has_no_form_in_this_format() -> None:
    model = model_of({"preset": "gpt2", "max_positions": 24})
    with pytest.raises(
        UserError, match=r"model\.positions: learned: GPT-2's layout keeps q, k and v in one weight"
    ):
        names_of(model.config, AdapterConfig(), model.vocab_size)


def test_an_adapter_of_scaled_queries_is_refused() -> None:
    """Of a model whose heads are larger than those of the base of muP: PEFT's layout has no place for the scale."""
    with pytest.raises(UserError, match=r"model\.mla: DeepSeek-V3's layout has rows"):
        names_of(ModelConfig(dim=32, heads=4, mla={}), AdapterConfig(), 50)
    config = ModelConfig(dim=32, heads=4, mup_base_width=16, mup_base_head_dim=2)
    with pytest.raises(UserError, match=r"model\.mup_base_head_dim: 2: scales queries"):
        names_of(config, AdapterConfig(), 50)
    assert names_of(config.model_copy(update={"mup_base_head_dim": 8}), AdapterConfig(), 50)
