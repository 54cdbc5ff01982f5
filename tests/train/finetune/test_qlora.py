"""A run whose frozen weights are NF4: codes never change, kills and other layouts change nothing, and what is exported is the model
that was trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.splits import load_model
from corpusmill.train.finetune.start import starting_model
from corpusmill.train.model.adapters import adapted, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.hugging_face import load_weights
from tests.forks import launch
from tests.train.conftest import VOCAB, tokenizer_json
from tests.train.finetune.conftest import ADAPTER
from tests.train.finetune.test_start import weights
from tests.train.models import model_of
from tests.train.test_commands import command
from tests.train.test_resume import Crash, crash_at, outcome, run
from tests.train.tools.test_hugging_face import written

WIDE = {"dim": 64, "head_dim": 32, "ffn_dim": 128}
CODES = ("codes", "scales", "factors")
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def small(tuned: Make, tmp_path: Path) -> Make:
    """As `tuned`, on a model of which blocks of 64 divide all inputs."""
    start = written(model_of({"layers": 2, "kv_heads": 2, **WIDE}, VOCAB), tmp_path / "wide")
    given = {"init_from": start.url, **{f"model.{key}": value for key, value in WIDE.items()}}
    return lambda **more: tuned(**{**given, "adapter": {**ADAPTER, "quantise": "nf4"}, **more})


def test_it_resumes_to_the_bit_and_its_codes_stay(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = {"checkpoint.every": 3}
    run(small(**settings, output=str(tmp_path / "unbroken")))
    assert " bytes as NF4, " in capsys.readouterr().err
    config = TrainConfig.model_validate(small(**settings))
    first = starting_model(config, VOCAB, tokenizer_json()).state_dict()
    found = weights(tmp_path / "unbroken", 8)
    frozen = [name for name in found if name.endswith(CODES)]
    assert len(frozen) == 3 * 14 and sorted(found) == sorted(first)
    assert all(torch.equal(found[name], first[name]) and found[name].any() for name in frozen)
    with monkeypatch.context() as patch:
        crash_at(patch, 5)
        with pytest.raises(Crash):
            run(small(**settings, output=str(tmp_path / "cut")))
    run(small(**settings, output=str(tmp_path / "cut")))
    assert outcome(str(tmp_path / "cut"), 8) == outcome(str(tmp_path / "unbroken"), 8)


@pytest.mark.parametrize("parallel", [{"zero": 3}, {"tensor": 2}])
def test_saved_by_two_processes_it_goes_on_in_one(
    parallel: dict[str, int], small: Make, tmp_path: Path
) -> None:
    settings = {"optimizer.eps": 1e-4, "checkpoint.every": 4}
    run(small(**settings, output=str(tmp_path / "alone")))
    file = tmp_path / "two.yaml"
    two = small(**settings, parallel=parallel, stop_after=4, output=str(tmp_path / "two"))
    file.write_text(json.dumps(two))
    done = launch(2, "corpusmill.train", file)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in (4, 8):
        if step == 8:
            run(small(**settings, output=str(tmp_path / "two")))
        here, wanted = weights(tmp_path / "two", step), weights(tmp_path / "alone", step)
        assert list(here) == list(wanted)
        for name, value in here.items():
            near = 0.0 if name.endswith(CODES) else 1e-4
            assert torch.allclose(value, wanted[name], rtol=near, atol=near), (step, name)


def test_what_is_exported_is_the_merged_model(small: Make, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(small()))
    config = TrainConfig.model_validate(small())
    run(small())
    found = checkpoint.load_newest(Folder(tmp_path / "run"))
    assert found is not None
    merged = load_model(config, found, VOCAB, torch.device("cpu"))
    beside = with_adapters(Decoder(config.model, VOCAB), config.adapter)
    checkpoint.restore(found, beside)
    assert not adapted(merged) and len(adapted(beside)) == 14
    ids = torch.arange(48).view(2, 24)
    torch.testing.assert_close(merged(ids), beside.eval()(ids), rtol=1e-5, atol=1e-5)
    command("export", str(file), str(tmp_path / "out"))
    exported = Decoder(config.model, VOCAB)
    load_weights(exported, Folder(tmp_path / "out"), tokenizer_json())
    for name, value in merged.state_dict().items():
        assert torch.equal(exported.state_dict()[name], value), name
    assert "the adapter of step 8, 28 tensors" in command(
        "export", str(file), str(tmp_path / "adapter"), "--format", "peft"
    )
    with pytest.raises(UserError, match="was trained beside weights in nf4"):
        command("generate", str(file), "--adapter", str(tmp_path / "run"), "--prompt", "a")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model.dim": 96, "model.head_dim": 32}, r"quantise: model\.dim of 96, the inputs of q"),
        ({"model.ffn_dim": 192, "parallel": {"tensor": 2}}, r"ffn_dim of 192, .* of 64 x parallel\.tensor 2"),
    ],
)
def test_a_cut_block_is_refused(small: Make, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig.model_validate(small(**more))
