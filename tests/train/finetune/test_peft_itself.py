"""PEFT, in folders of its own, computes from an adapter that we write what we compute, merges it to the same weights, and what it
saves is read here again to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.peers import NotMeasured, packages
from corpusmill.common.storage import Folder
from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.train.finetune.peft import described, load_adapter, names_of
from corpusmill.train.finetune.peft_virtual import described_virtual, joined
from corpusmill.train.model.adapters import merge, with_adapters
from corpusmill.train.run_folder import write_json
from tests.train.finetune.test_virtual import COUNT, KINDS, MODELS, virtual
from tests.train.model.test_adapters import with_values
from tests.train.models import model_of
from tests.train.tools.test_hugging_face import written

# All that is not in the environment of the tests, or is there in a version that this release of transformers refuses.
NEEDED = (
    "peft==0.21.2", "transformers==5.3.0", "accelerate==1.15.0", "tokenizers==0.22.2", "huggingface-hub==1.33.0",
    "httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0", "anyio==4.16.0", "sniffio==1.3.1", "psutil==7.2.2",
)  # fmt: skip
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import peft, torch, transformers
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
ids = load_file(sys.argv[2])["ids"]
for folder in sys.argv[3:]:
    base = transformers.AutoModelForCausalLM.from_pretrained(folder + "/base", attn_implementation="sdpa")
    model = peft.PeftModel.from_pretrained(base, folder + "/adapter").eval()
    logits = model(ids).logits.detach().contiguous()
    model.save_pretrained(folder + "/again")
    merged = {name: x.contiguous() for name, x in model.merge_and_unload().state_dict().items() if "proj" in name}
    save_file({"logits": logits, **merged}, folder + "/found.safetensors")
"""
VIRTUAL = """
import sys
sys.path.insert(0, sys.argv[1])
import peft, torch, transformers
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
ids = load_file(sys.argv[2])["ids"]
for folder in sys.argv[3:]:
    base = transformers.AutoModelForCausalLM.from_pretrained(folder + "/base", attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, folder + "/adapter").eval()
    logits = model(ids).logits.detach()[:, -ids.shape[1]:].contiguous()
    model.save_pretrained(folder + "/again")
    save_file({"logits": logits}, folder + "/found.safetensors")
"""
PLACES = {"q": "self_attn.q_proj", "down": "mlp.down_proj"}


def ask(script: str, packages: str, place: Path, cases: list[Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, packages, place / "ids.safetensors", *cases], capture_output=True, text=True, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(place), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_peft_computes_and_merges_the_same_and_what_it_saves_comes_back(tmp_path: Path) -> None:
    try:
        folder = packages("peft", NEEDED)
    except NotMeasured as reason:
        pytest.skip(f"peft: {reason}")
    models: dict[str, dict[str, Any]] = {"llama": {"kv_heads": 2}, "qwen3": {"kv_heads": 2, "qk_norm": True}}
    kinds: dict[str, dict[str, Any]] = {
        "lora": {}, "rslora": {"rslora": True}, "dora": {"dora": True}, "some": {"targets": ["v", "q", "down"]}
    }  # fmt: skip
    ids = torch.arange(40).view(2, 20)
    save_file({"ids": ids}, tmp_path / "ids.safetensors")
    cases = {}
    for model, settings in models.items():
        for kind, keys in kinds.items():
            place, adapter = tmp_path / f"{model}-{kind}", AdapterConfig(rank=4, alpha=6.0, **keys)
            cases[place] = settings, adapter
            written(model_of(settings), place / "base")
            ours = with_values(adapter, settings)
            parameters, names = dict(ours.named_parameters()), names_of(ours.config, adapter, ours.vocab_size)
            out = Folder(place / "adapter")
            write_json(out / "adapter_config.json", described(adapter, names, str(place / "base")))
            tensors = {theirs: parameters[name].detach().clone() for theirs, name in names.items()}
            save_file(tensors, place / "adapter/adapter_model.safetensors", metadata={"format": "pt"})
    ask(SCRIPT, folder, tmp_path, list(cases))
    for place, (settings, adapter) in cases.items():
        found, ours = load_file(place / "found.safetensors"), with_values(adapter, settings)
        assert torch.allclose(found["logits"], ours(ids).detach(), rtol=1e-5, atol=1e-5), place
        again = with_adapters(model_of(settings), adapter)
        load_adapter(again, Folder(place / "again"))
        for (name, a), b in zip(ours.state_dict().items(), again.state_dict().values(), strict=True):
            assert torch.equal(a, b), (place, name)
        merged = merge(ours)
        for number in range(3):
            for end, theirs in PLACES.items():
                part = "ffn" if end == "down" else "attention"
                weight = merged.get_parameter(f"layers.{number}.{part}.{end}.weight").detach()
                assert torch.allclose(
                    found[f"model.layers.{number}.{theirs}.weight"], weight, rtol=0, atol=1e-6
                )
        assert not torch.allclose(model_of(settings)(ids), found["logits"], atol=0.01), place


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_peft_computes_the_same_behind_virtual_tokens(model: str, tmp_path: Path) -> None:
    try:
        folder = packages("peft", NEEDED)
    except NotMeasured as reason:
        pytest.skip(f"peft: {reason}")
    ids = torch.arange(40).view(2, 20)
    save_file({"ids": ids}, tmp_path / "ids.safetensors")
    cases = {tmp_path / kind: virtual(kind, model) for kind in KINDS}
    for place, ours in cases.items():
        assert ours.adapter is not None
        written(model_of(MODELS[model]), place / "base")
        out = Folder(place / "adapter")
        write_json(
            out / "adapter_config.json", described_virtual(ours.config, ours.adapter, str(place / "base"))
        )
        tensor = joined(ours.config, ours.adapter, dict(ours.named_parameters())).detach().contiguous()
        save_file(
            {"prompt_embeddings": tensor},
            place / "adapter/adapter_model.safetensors",
            metadata={"format": "pt"},
        )
    ask(VIRTUAL, folder, tmp_path, list(cases))
    for place, ours in cases.items():
        found = load_file(place / "found.safetensors")["logits"]
        with torch.no_grad():
            wanted = ours(torch.cat((torch.zeros(2, COUNT, dtype=torch.int64), ids), 1))[:, COUNT:]
        assert torch.allclose(found, wanted[..., : found.shape[-1]], rtol=1e-5, atol=1e-5), place
        again = with_adapters(model_of(MODELS[model]), ours.adapter)
        load_adapter(again, Folder(place / "again"))
        for (name, a), b in zip(ours.state_dict().items(), again.state_dict().values(), strict=True):
            assert torch.equal(a, b), (place, name)
