"""A run that trains an adapter: from its base, through kills and other layouts, to a model that is evaluated and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.splits import load_model
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.adapters import adapted, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.hugging_face import load_weights
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.conftest import VOCAB, tokenizer_json
from tests.train.finetune.conftest import ADAPTER
from tests.train.test_commands import command
from tests.train.test_resume import Crash, crash_at, outcome, run

Make = Callable[..., dict[str, Any]]


def weights(output: Path, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.read_tensors(checkpoint.load_step(Folder(output), step))


@pytest.mark.parametrize("dora", [False, True])
def test_a_run_trains_its_adapter_alone_and_resumes_to_the_bit(
    dora: bool, tuned: Make, base: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = {
        "adapter": {**ADAPTER, "dora": dora},
        "checkpoint.every": 3,
        "log.every": 2,
        "model.dropout": 0.1,
    }
    output = tmp_path / "unbroken"
    done = run(tuned(**settings, output=str(output)))
    found = weights(output, 8)
    trained = sum(value.numel() for name, value in found.items() if "lora" in name or "magnitude" in name)
    shown = f"adapter: {trained:,} of {done['parameters']:,} parameters are trained ("
    assert shown in capsys.readouterr().err and done["parameters"] == sum(x.numel() for x in found.values())
    plain = Decoder(TrainConfig.model_validate(tuned()).model, VOCAB)
    load_weights(plain, base, tokenizer_json())
    for name, value in plain.state_dict().items():
        assert torch.equal(found[name], value), name
    assert all(value.any(dim=1).all() for name, value in found.items() if name.endswith("lora_b"))
    state = checkpoint.read_tensors(checkpoint.load_step(Folder(output), 8), checkpoint.OPTIMIZER)
    assert {name.rpartition(".")[2] for name in state} <= {"lora_a", "lora_b", "magnitude"}
    rows = read_metrics(Folder(output))
    assert rows[-1]["loss"] < rows[0]["loss"]
    expected = outcome(str(output), 8)
    for step in (1, 5, 7):
        cut = str(tmp_path / f"cut-{step}")
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                run(tuned(**settings, output=cut))
        run(tuned(**settings, output=cut))
        assert outcome(cut, 8) == expected, step


@pytest.mark.parametrize("parallel", [{"zero": 3}, {"tensor": 2}])
def test_saved_by_two_processes_it_goes_on_in_one(
    parallel: dict[str, int], tuned: Make, tuned_file: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {"adapter": {**ADAPTER, "dora": True}, "optimizer.eps": 1e-4}
    run(tuned(**settings, output=str(tmp_path / "alone"), **{"checkpoint.every": 4}))
    file = tuned_file(**settings, parallel=parallel, stop_after=4, output=str(tmp_path / "two"))
    done = launch(2, "corpusmill.train", file)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in (4, 8):
        if step == 8:
            run(tuned(**settings, output=str(tmp_path / "two")))
        here, wanted = weights(tmp_path / "two", step), weights(tmp_path / "alone", step)
        assert list(here) == list(wanted)
        for name, value in here.items():
            assert torch.allclose(value, wanted[name], rtol=1e-4, atol=1e-4), (step, name)
            # The parts of both processes, not those of the first alone.
            assert not name.endswith("lora_b") or value.any(dim=1).all(), (step, name)


@pytest.mark.parametrize("dora", [False, True])
def test_what_is_evaluated_and_exported_is_the_merged_model(
    dora: bool, tuned_file: Callable[..., Path], tmp_path: Path
) -> None:
    file = tuned_file(adapter={**ADAPTER, "dora": dora})
    config = TrainConfig.model_validate(json.loads(file.read_text()))
    train(config)
    found = checkpoint.load_newest(Folder(tmp_path / "run"))
    assert found is not None
    merged = load_model(config, found, VOCAB, torch.device("cpu"))
    beside = with_adapters(Decoder(config.model, VOCAB), config.adapter)
    checkpoint.restore(found, beside)
    assert not adapted(merged) and len(adapted(beside)) == 14
    ids = torch.arange(48).view(2, 24)
    torch.testing.assert_close(merged(ids), beside.eval()(ids), rtol=1e-5, atol=1e-5)
    printed = command("export", str(file), str(tmp_path / "out"))
    assert printed == f"{tmp_path / 'out'}: LlamaForCausalLM of step 8, 1 file(s) of weights\n"
    exported = Decoder(config.model, VOCAB)
    load_weights(exported, Folder(tmp_path / "out"), tokenizer_json())
    for name, value in merged.state_dict().items():
        assert torch.equal(exported.state_dict()[name], value), name
    # What the run saw of its adapted model is what an evaluation sees of the merged one.
    command("evaluate", str(file), "--ngram-tokens", "0")
    scored = json.loads((tmp_path / "run/evaluation.json").read_text())
    last = read_metrics(Folder(tmp_path / "run"))[-1]["validation"]
    assert scored["step"] == 8 and set(scored["sources"]) == set(last)
    assert command("generate", str(file), "--prompt", chr(0x105), "--max-tokens", "5", "--temperature", "0")
