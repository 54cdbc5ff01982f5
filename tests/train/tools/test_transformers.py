"""`transformers`, in an environment of its own, computes from what we write the logits that we compute."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench.peers import NotMeasured, environment
from corpusmill.common.storage import Folder
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import load_weights, write_weights
from tests.train.models import KINDS, model_of

# PyTorch is borrowed from the environment of the tests: of its own the peer has all but that.
SCRIPT = """
import json, os, sys
sys.path += os.environ["BORROWED"].split(os.pathsep)
import torch, transformers
from safetensors.torch import save_file
torch.set_num_threads(1)
for folder in sys.argv[2:]:
    kind = json.load(open(folder + "/config.json"))["architectures"][0]
    model, report = getattr(transformers, kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="sdpa")
    wrong = {key: [str(x) for x in value] for key, value in report.items() if value}
    logits = model.eval()(torch.load(sys.argv[1], weights_only=True)).logits
    save_file({"logits": logits.detach().contiguous()}, folder + "/logits.safetensors")
    model.save_pretrained(folder + "/again")
    print(json.dumps([type(model).__name__, wrong]), flush=True)
"""


SINCE = {"EuroBertForMaskedLM": "5.3.0"}  # the first release that has it


@pytest.mark.slow
@pytest.mark.parametrize("release", ["5.3.0", "4.57.6"])
def test_logits_are_equal_there_and_after_the_way_back(tmp_path: Path, release: str) -> None:
    try:
        python = environment("transformers", (f"transformers=={release}", "tokenizers==0.22.2"))
    except NotMeasured as reason:
        pytest.skip(f"transformers: {reason}")
    ids = torch.randint(0, 90, (2, 24), generator=torch.Generator().manual_seed(0))
    torch.save(ids, tmp_path / "ids.pt")
    models = {
        kind: model_of(settings)
        for kind, (name, settings) in KINDS.items()
        if name not in SINCE or release >= SINCE[name]
    }
    folders = {kind: tmp_path / kind.replace(" ", "-") for kind in models}
    for kind, model in models.items():
        made = architecture(model.config, model.embedding.num_embeddings, 24)
        out = Folder(folders[kind])
        write_weights(out, made, model.state_dict(), torch.float32, 20_000)
        write_json(out / "config.json", {"architectures": [made.name], **made.config})
    done = subprocess.run(
        [python, "-c", SCRIPT, tmp_path / "ids.pt", *folders.values()], capture_output=True, text=True, cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1",
             "BORROWED": os.pathsep.join([str(Path(torch.__file__).parents[1])])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for (kind, model), (name, wrong) in zip(models.items(), answers, strict=True):
        assert (name, wrong) == (KINDS[kind][0], {}), kind
        ours = model(ids).detach()
        theirs = load_file(folders[kind] / "logits.safetensors")["logits"]
        assert theirs.std() > 0.05, kind
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5, msg=lambda m, k=kind: f"{k}: {m}")
        other = model_of(KINDS[kind][1], spread=0.0)  # from what their `save_pretrained` wrote
        load_weights(other, Folder(folders[kind] / "again"), b'{"model": {}}')
        torch.testing.assert_close(
            other(ids).detach(), ours, atol=1e-6, rtol=1e-6, msg=lambda m, k=kind: f"{k}: {m}"
        )
