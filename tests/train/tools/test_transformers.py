"""`transformers`, in an environment of its own, computes from what we write the logits that we compute."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from bench.peers import NotMeasured, environment
from corpusmill.common.storage import Folder
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import load_weights, theirs, write_weights
from tests.train.models import KINDS, model_of

# PyTorch is borrowed from the environment of the tests: of its own the peer has all but that.
SCRIPT = """
import json, os, sys
sys.path += os.environ["BORROWED"].split(os.pathsep)
import torch, transformers
from safetensors.torch import save_file
torch.set_num_threads(1)
for folder in sys.argv[3:]:
    kind = json.load(open(folder + "/config.json"))["architectures"][0]
    model, report = getattr(transformers, kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="sdpa")
    wrong = {key: [str(x) for x in value] for key, value in report.items() if value}
    logits = model.eval()(torch.load(sys.argv[1], weights_only=True)).logits
    save_file({"logits": logits.detach().contiguous()}, folder + "/logits.safetensors")
    if sys.argv[2] == "gradients":
        ids = torch.load(sys.argv[1], weights_only=True)
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        save_file({n: p.grad.contiguous() for n, p in model.named_parameters()}, folder + "/gradients.safetensors")
    model.save_pretrained(folder + "/again")
    print(json.dumps([type(model).__name__, wrong]), flush=True)
"""


IDS = torch.randint(0, 90, (2, 24), generator=torch.Generator().manual_seed(0))
SINCE = {"EuroBertForMaskedLM": "5.3.0"}  # the first release that has it


@pytest.mark.slow
@pytest.mark.parametrize("release", ["5.3.0", "4.57.6"])
def test_logits_are_equal_there_and_after_the_way_back(tmp_path: Path, release: str) -> None:
    models = {
        kind: model_of(settings)
        for kind, (name, settings) in KINDS.items()
        if name not in SINCE or release >= SINCE[name]
    }
    for (kind, model), (folder, name, wrong) in zip(
        models.items(), answers(tmp_path, release, models), strict=True
    ):
        assert (name, wrong) == (KINDS[kind][0], {}), kind
        ours = model(IDS).detach()
        found = load_file(folder / "logits.safetensors")["logits"]
        assert found.std() > 0.05, kind
        torch.testing.assert_close(found, ours, atol=1e-5, rtol=1e-5, msg=lambda m, k=kind: f"{k}: {m}")
        other = model_of(KINDS[kind][1], spread=0.0)  # from what their `save_pretrained` wrote
        load_weights(other, Folder(folder / "again"), b'{"model": {}}')
        torch.testing.assert_close(
            other(IDS).detach(), ours, atol=1e-6, rtol=1e-6, msg=lambda m, k=kind: f"{k}: {m}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("release", ["5.3.0", "4.57.6"])
def test_gradients_of_latent_attention_are_equal_there(tmp_path: Path, release: str) -> None:
    """Of every parameter, in their order of rows."""
    models = {
        kind: model_of(KINDS[kind][1])
        for kind in ("deepseek", "deepseek free", "deepseek yarn", "deepseek ntk")
    }
    for (kind, model), (folder, *_) in zip(
        models.items(), answers(tmp_path, release, models, "gradients"), strict=True
    ):
        F.cross_entropy(model(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found = load_file(folder / "gradients.safetensors")
        made = architecture(model.config, model.embedding.num_embeddings, 24)
        assert len(ours) == len(made.parts) == len(found)
        for part in made.parts:
            there, here = found[part.name], theirs(part, ours)
            largest = float(there.abs().max())
            assert largest > 1e-6
            torch.testing.assert_close(
                there,
                here,
                atol=1e-4 * largest,
                rtol=1e-4,
                msg=lambda m, n=part.name, k=kind: f"{k}: {n}: {m}",
            )


def answers(
    tmp_path: Path, release: str, models: dict[str, Decoder], more: str = "logits"
) -> list[tuple[Path, str, dict[str, list[str]]]]:
    """Of each model its folder, the class that `transformers` makes of it, and what this found missing or surplus."""
    try:
        python = environment("transformers", (f"transformers=={release}", "tokenizers==0.22.2"))
    except NotMeasured as reason:
        pytest.skip(f"transformers: {reason}")
    torch.save(IDS, tmp_path / "ids.pt")
    folders = {kind: tmp_path / kind.replace(" ", "-") for kind in models}
    for kind, model in models.items():
        made = architecture(model.config, model.embedding.num_embeddings, 24)
        out = Folder(folders[kind])
        write_weights(out, made, model.state_dict(), torch.float32, 20_000)
        write_json(out / "config.json", {"architectures": [made.name], **made.config})
    done = subprocess.run(
        [python, "-c", SCRIPT, tmp_path / "ids.pt", more, *folders.values()], capture_output=True, text=True, cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1",
             "BORROWED": os.pathsep.join([str(Path(torch.__file__).parents[1])])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [(folder, name, wrong) for folder, (name, wrong) in zip(folders.values(), printed, strict=True)]
