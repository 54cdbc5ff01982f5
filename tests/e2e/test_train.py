"""From the shards of a real run to a model, by the commands: kills, object storage, other commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from tests.conftest import IMPORT_PATH, ROOT
from tests.e2e.cli import corpusmill

CONFIG = """\
name: small
output: {output}
seed: 3
data:
  shards: {shards}
  weights: {{books: 0.5, speeches: 0.25, qa: 0.25}}
  sequence_length: 64
  global_batch: 8
  micro_batch: 4
model: {{dim: 32, layers: 2, heads: 2, kv_heads: 1, ffn_dim: 64, dropout: 0.1}}
optimizer: {{lr: 3.0e-3}}
schedule: {{steps: 60, warmup_steps: 5, kind: cosine}}
checkpoint: {{every: 10, keep_last: 2}}
validation: {{every: 30, tokens: 512}}
log: {{every: 5, tensorboard: true}}
"""


def write_config(folder: Path, shards: str | Path, output: str | Path) -> Path:
    file = folder / "small-train.yaml"
    file.write_text(CONFIG.format(shards=shards, output=output))
    return file


def losses(output: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if "loss" in row]
    assert steps == sorted(set(steps)), "a resumed run tells no step twice"
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.fixture(scope="session")
def trained(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    corpusmill("train", write_config(folder, finished / "shards", folder / "out"))
    return folder


def weights(output: Path) -> dict[str, bytes]:
    newest = sorted((output / "checkpoints").iterdir())[-1]
    return {file.name: file.read_bytes() for file in sorted(newest.glob("*.safetensors"))}


def test_the_loss_falls_and_is_reported(trained: Path) -> None:
    values = list(losses(trained / "out").values())
    assert values[-1] < values[0] - 0.5
    assert list((trained / "out").rglob("events.out.tfevents*"))


def test_kill_9_then_the_same_command_gives_the_same_model(
    trained: Path, finished: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, finished / "shards", tmp_path / "out")
    command = [sys.executable, "-m", "corpusmill", "train", str(config)]
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"}
    kills = 0
    for wanted in (1, 2):  # after the first checkpoint, and again after a later one
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                command, env=env, cwd=ROOT, start_new_session=True, stdout=log, stderr=log
            )
        while (
            process.poll() is None
            and len(list((tmp_path / "out").glob("checkpoints/*/manifest.json"))) < wanted
        ):
            time.sleep(0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    corpusmill("train", config)
    assert kills > 0
    assert losses(tmp_path / "out") == losses(trained / "out")
    assert weights(tmp_path / "out") == weights(trained / "out") != {}


def test_evaluate_prints_the_unigram_model_beside(trained: Path) -> None:
    config = trained / "small-train.yaml"
    result = json.loads(corpusmill("evaluate", config, "--json").stdout)
    text = json.dumps(result)
    assert "unigram" in text and "bits_per_byte" in text and "books" in text


def test_generate_plan_and_batch(trained: Path, finished: Path) -> None:
    config = trained / "small-train.yaml"
    one = corpusmill("generate", config, "--prompt", "The whale", "--seed", "1").stdout
    assert (
        one.startswith("The whale")
        and one == corpusmill("generate", config, "--prompt", "The whale", "--seed", "1").stdout
    )
    assert "books" in corpusmill("plan", config).stdout
    answer = corpusmill("batch", config, "--step", "1000000", "--json").stdout
    (doc_id, *_) = [part for part in answer.replace('"', " ").split() if len(part) == 32]
    (row,) = json.loads(corpusmill("why", doc_id, "--run", finished, "--json").stdout)
    assert row["outcome"] == "kept", "a token of any batch leads back to its document"


@pytest.mark.s3
def test_training_from_and_to_object_storage(trained: Path, finished: Path, tmp_path: Path, s3: str) -> None:
    there = Folder(f"{s3}/run")
    for part in ("shards", "tokenizer"):
        for file in sorted((finished / part).rglob("*")):
            if file.is_file():
                (there / str(file.relative_to(finished))).write(file.read_bytes())
    config = write_config(tmp_path, f"{s3}/run/shards", f"{s3}/out")
    corpusmill("train", config, "--set", "log.tensorboard=false")
    names = [e.path for e in Folder(f"{s3}/out/checkpoints").list() if e.path.endswith(".safetensors")]
    newest = max(name.split("/")[0] for name in names)
    stored = {
        n.split("/")[1]: (Folder(f"{s3}/out/checkpoints") / n).read() for n in names if n.startswith(newest)
    }
    assert stored == weights(trained / "out")
    assert "bits_per_byte" in corpusmill("evaluate", config, "--json").stdout
