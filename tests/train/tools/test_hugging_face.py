"""Export and import without `transformers`: what is written, what is refused, and training that goes on from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from corpusmill.common.config import load
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.checkpoint import read_tensors
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import export, load_weights, write_weights
from corpusmill.train.trainer import train
from tests.train.conftest import EOS, tokenizer_json
from tests.train.models import KINDS, MLA, MOE, SMALL, SOFTMAX, model_of
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]
TOKENIZER = tokenizer_json()


def written(model: Any, out: Path, shard_bytes: int = 10**9) -> Folder:
    made = architecture(model.config, model.embedding.num_embeddings, 24)
    write_weights(Folder(out), made, model.state_dict(), torch.float32, shard_bytes)
    write_json(Folder(out) / "config.json", {"architectures": [made.name], **made.config})
    return Folder(out)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_comes_back(kind: str, tmp_path: Path) -> None:
    model = model_of(KINDS[kind][1])
    out = written(model, tmp_path / "out", 20_000)
    names = [entry.path for entry in out.list()]
    assert len(names) > 3 and "model.safetensors.index.json" in names
    index = json.loads((out / "model.safetensors.index.json").read())
    for name in set(index["weight_map"].values()):
        tensors = load_file(tmp_path / "out" / name)
        assert len(tensors) == 1 or sum(t.nbytes for t in tensors.values()) <= 20_000
        assert {k for k, v in index["weight_map"].items() if v == name} == set(tensors)
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in model.state_dict().values()) - sum(
        v.nbytes
        for k, v in model.state_dict().items()
        if k.endswith("ffn.bias") and not kind.startswith(("glm4", "deepseek"))
    )
    other = model_of(KINDS[kind][1], spread=0.0)
    load_weights(other, out, TOKENIZER)
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"norm": "layernorm"}, "model.norm: layernorm"),
        ({"activation": "gelu"}, "model.activation: gelu"),
        ({"qk_norm": True, "bias": True}, "model.bias: True"),
        ({"value_embeddings": "all"}, "model.value_embeddings: all"),
        ({"value_residual": True}, "model.value_residual: True"),
        ({"mla": MLA, "window": 4}, "model.window: 4"),
        ({"mla": MLA, "nope_every": 2}, "model.nope_every: 2"),
        ({"mla": MLA, "causal": False}, "model.mla: "),
        ({"mla": MLA, "moe": SOFTMAX}, "model.moe.scores: softmax"),
        ({"mla": MLA, "moe": {**MOE, "every": 2}}, "model.moe.every: 2"),
        ({"mla": MLA, "attention_sinks": True}, "model.attention_sinks: True"),
        ({"attention_softcap": 30.0}, "model.attention_softcap: 30.0"),
        ({"logit_softcap": 30.0}, "model.logit_softcap: 30.0"),
        ({"attention_sinks": True}, "model.attention_sinks: True"),
        ({"qk_norm": True, "nope_every": 2}, "model.nope_every: 2"),
        ({"moe": SOFTMAX, "window": 4}, "model.window: 4"),
        ({"preset": "gpt2", "window": 4}, "model.window: 4"),
        ({"preset": "gpt2", "mup_base_width": 16, "mup_base_head_dim": 2}, "model.mup_base_head_dim: 2"),
        ({"preset": "gpt2", "bias": False}, "model.bias: False"),
        ({"preset": "gpt2", "activation": "swiglu"}, "model.activation: swiglu"),
        ({"preset": "gpt2", "kv_heads": 2}, "model.key_value_heads: 2"),
        ({"preset": "gpt2", "moe": MOE}, "model.moe: "),
        ({"moe": SOFTMAX, "bias": True}, "model.bias: True"),
        ({"moe": {**SOFTMAX, "balance": "bias"}}, "model.moe.balance: bias"),
        ({"moe": {**SOFTMAX, "shared_experts": 1}}, "model.moe.shared_experts: 1"),
        ({"moe": {**SOFTMAX, "every": 2}}, "model.moe.every: 2"),
        ({"moe": {**SOFTMAX, "first": 1}}, "model.moe.first: 1"),
        ({"moe": {**MOE, "every": 2}}, "model.moe.every: 2"),
        ({"rope_scaling": {"kind": "yarn", "factor": 1.3, "original_length": 16}}, "model.rope_scaling.factor: 1.3"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_by_its_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as error:
        architecture(ModelConfig.model_validate({**SMALL, **settings}), 96, 24)
    assert str(error.value).startswith(key) and "\n" not in str(error.value)


def test_an_exported_run_is_where_another_starts(write_config: Callable[..., Path], tmp_path: Path) -> None:
    first = write_config(**{"schedule.steps": 10, "model.dropout": 0.1})
    done = train(load(TrainConfig, first))
    out = tmp_path / "out"
    printed = command("export", str(first), str(out))
    assert printed == f"{out}: LlamaForCausalLM of step 10, 1 file(s) of weights\n"
    config, tokens = (json.loads((out / n).read_text()) for n in ("config.json", "generation_config.json"))
    assert config["architectures"] == ["LlamaForCausalLM"] and config["vocab_size"] == 96
    assert tokens == {"bos_token_id": EOS, "eos_token_id": EOS}
    assert (out / "tokenizer.json").read_bytes() == TOKENIZER
    assert json.loads((out / "tokenizer_config.json").read_text())["eos_token"] == "<|endoftext|>"
    second = write_config(
        output=str(tmp_path / "second"),
        init_from=str(out),
        **{"schedule.steps": 3, "schedule.warmup_steps": 1, "optimizer.lr": 1e-9},
    )
    train(load(TrainConfig, second))
    rows = {name: read_metrics(Folder(tmp_path / name)) for name in ("run", "second")}
    assert rows["run"][0]["loss"] - rows["run"][-1]["loss"] > 0.05
    assert rows["second"][-1]["validation"] == pytest.approx(rows["run"][-1]["validation"], rel=1e-5)
    assert done["validation"] == rows["run"][-1]["validation"]
    (out / "model.safetensors").unlink()  # not needed to go on
    again = train(load(TrainConfig, second))
    assert again["steps"] == 3
    with pytest.raises(UserError, match="holds a config.json already"):
        command("export", str(tmp_path / "run"), str(out))


def test_bfloat16_and_the_biases_of_experts(config: Make, tmp_path: Path) -> None:
    settings = config(**{"schedule.steps": 5, "model.moe": {**MOE, "bias_rate": 0.01}})
    checked = TrainConfig.model_validate(settings)
    train(checked)
    run = Folder(tmp_path / "run")
    result = export(checked, run, Folder(tmp_path / "out"), "bfloat16")
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert result["architecture"] == "Glm4MoeForCausalLM" and result["bytes"] == sum(
        t.nbytes for t in tensors.values()
    )
    found = checkpoint.load_newest(run)
    assert found is not None
    ours = read_tensors(found)
    assert (ours["layers.1.ffn.bias"] != 0).any()
    torch.testing.assert_close(
        tensors["model.layers.1.mlp.gate.e_score_correction_bias"].float(),
        ours["layers.1.ffn.bias"],
        atol=1e-3,
        rtol=1e-2,
    )
    assert torch.equal(
        tensors["model.layers.0.mlp.experts.2.up_proj.weight"], ours["layers.0.ffn.up"][2].bfloat16()
    )
    with pytest.raises(UserError, match="--dtype: must be float32, bfloat16, float16, is 'fp8'"):
        export(checked, run, Folder(tmp_path / "other"), "fp8")


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    model = model_of({})
    out = written(model, tmp_path / "out")
    file = tmp_path / "out/model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.7.more"] = torch.zeros(3)
    del tensors["model.norm.weight"]
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(48, 31)
    save_file(tensors, file)
    with pytest.raises(WorkError) as error:
        load_weights(model, out, TOKENIZER)
    for part in (
        "model.layers.7.more is surplus", "model.norm.weight is missing",
        "model.layers.1.mlp.up_proj.weight is (48, 31), this model has (48, 32)",
    ):  # fmt: skip
        assert part in str(error.value)
    file.write_bytes(b"no tensors")
    with pytest.raises(WorkError, match="not a safetensors file"):
        load_weights(model, out, TOKENIZER)
    file.unlink()
    with pytest.raises(WorkError, match="no such file"):
        load_weights(model, out, TOKENIZER)


def test_another_model_is_refused_by_its_keys(tmp_path: Path) -> None:
    out = written(model_of({"rope_theta": 500.0, "dim": 40}), tmp_path / "out")
    with pytest.raises(UserError) as error:
        load_weights(model_of({}), out, TOKENIZER)
    assert "hidden_size is 40 there and 32 here" in str(error.value)
    assert "rope_theta is 500.0 there and 10000.0 here" in str(error.value)
    with pytest.raises(UserError, match="is a LlamaForCausalLM, and .* describes a GPT2LMHeadModel"):
        load_weights(model_of({"preset": "gpt2"}), out, TOKENIZER)
    with pytest.raises(UserError, match="set model.vocab_multiple to 1"):
        load_weights(model_of({"rope_theta": 500.0, "dim": 40}, vocab_size=100), out, TOKENIZER)
    with pytest.raises(UserError, match="it has no config.json"):
        load_weights(model_of({}), Folder(tmp_path / "nowhere"), TOKENIZER)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    model = model_of({})
    out = written(model, tmp_path / "out")
    other = json.loads(TOKENIZER)
    a, b = list(other["model"]["vocab"])[:2]
    vocab = other["model"]["vocab"]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    (out / "tokenizer.json").write(json.dumps(other).encode())
    with pytest.raises(UserError, match="is not the tokenizer of the shards"):
        load_weights(model, out, TOKENIZER)


def test_configs_and_names_of_other_releases(tmp_path: Path) -> None:
    """`rope_parameters` (5), `type` for `rope_type` (before 4.43), the inner model's names and masks (GPT-2's files)."""
    settings = KINDS["llama llama3"][1]
    model = model_of(settings)
    out = written(model, tmp_path / "out")
    content = json.loads((out / "config.json").read())
    scaling, theta = content.pop("rope_scaling"), content.pop("rope_theta")
    old = {**{k: v for k, v in scaling.items() if k != "rope_type"}, "type": "llama3"}
    for rope in (
        {"rope_parameters": {**scaling, "rope_theta": theta}}, {"rope_scaling": old, "rope_theta": theta},
    ):  # fmt: skip
        write_json(out / "config.json", {**content, **rope})
        load_weights(model, out, TOKENIZER)
    write_json(
        out / "config.json", {**content, "rope_theta": theta, "rope_scaling": {**scaling, "factor": 9.0}}
    )
    with pytest.raises(UserError, match="rope_scaling is "):
        load_weights(model, out, TOKENIZER)
    gpt2 = model_of(KINDS["gpt2"][1])
    out = written(gpt2, tmp_path / "gpt2")
    file = tmp_path / "gpt2/model.safetensors"
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(file).items()}
    save_file({**tensors, "h.0.attn.bias": torch.ones(1, 1, 24, 24)}, file)
    other = model_of(KINDS["gpt2"][1], spread=0.0)
    load_weights(other, out, TOKENIZER)
    assert all(torch.equal(a, b) for a, b in zip(gpt2.parameters(), other.parameters(), strict=True))
