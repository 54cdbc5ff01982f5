"""`transformers` reads the files itself, undoing the change of rows: its logits are ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench.peers import HARNESS, NotMeasured, packages
from tests.conftest import IMPORT_PATH
from tests.train.generate.models import BYTES
from tests.train.models import model_of
from tests.train.tools.gguf.test_write import WIDE, written

SCRIPT = """
import json, sys
sys.path.append(sys.argv[1])
import torch, transformers
from safetensors.torch import save_file
torch.set_num_threads(1)
ids = torch.load(sys.argv[2], weights_only=True)
for name in sys.argv[4:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[3], gguf_file=name, dtype=torch.float32)
    save_file({"logits": model.eval()(ids).logits.detach().contiguous()}, f"{sys.argv[3]}/{name}.safetensors")
    print(json.dumps(type(model).__name__), flush=True)
"""
TYPES = {"f32": 1e-6, "f16": 5e-3, "q8_0": 0.1, "q4_0": 1.0}  # and what the logits may differ by


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
def test_logits_are_equal_there(name: str, tmp_path: Path) -> None:
    try:
        peer = packages(HARNESS.name, HARNESS.requirements)
    except NotMeasured as reason:
        pytest.skip(f"transformers: {reason}")
    # `transformers` takes 128 for the size of Qwen3's heads, whatever the file says.
    more = {"qk_norm": True, "head_dim": 128} if name.startswith("Qwen") else {}
    model = model_of({**WIDE, **more}, vocab_size=BYTES)
    ids = torch.randint(0, BYTES, (2, 24), generator=torch.Generator().manual_seed(0))
    torch.save(ids, tmp_path / "ids.pt")
    files = {kind: written(model, tmp_path / "models" / f"{kind}.gguf", kind) for kind in TYPES}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, peer, tmp_path / "ids.pt", tmp_path / "models", *(f.name for f in files.values())],
        capture_output=True, text=True, cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1",
             "PYTHONPATH": IMPORT_PATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')] == [name] * len(
        TYPES
    )
    ours = model(ids).detach()
    apart = {}
    for kind, file in files.items():
        there = load_file(file.with_name(f"{file.name}.safetensors"))["logits"]
        apart[kind] = float((there - ours).abs().max())
    assert ours.std() > 0.05 and apart["f32"] < apart["f16"] < apart["q8_0"] < apart["q4_0"], apart
    assert all(apart[kind] <= most for kind, most in TYPES.items()), apart
