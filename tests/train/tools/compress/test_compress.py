"""The command, from a trained run to a model that training starts from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.compression import Compression, CompressionSettings
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.compress.calibrate import Stream
from corpusmill.train.tools.compress.compress import rewrite
from corpusmill.train.tools.compress.quantise import gptq, quantise
from corpusmill.train.tools.compress.report import matrices
from corpusmill.train.tools.hugging_face import load_weights
from corpusmill.train.trainer import train
from tests.conftest import shared
from tests.train.conftest import SOURCES, VOCAB, tokenizer_json, write_shards
from tests.train.evaluate.scorer_layouts import batches
from tests.train.generate.models import model
from tests.train.models import KINDS, model_of
from tests.train.test_commands import command

LAYERS = 3


def make_trained(folder: Path) -> None:
    """`folder/run`: of three layers, trained until it is better than chance."""
    shards = write_shards(Folder(folder / "shards"), dict.fromkeys(SOURCES, 2))
    config = {
        "name": "small", "output": str(folder / "run"), "seed": 7,
        "data": {"shards": shards.url, "sequence_length": 24, "global_batch": 16, "micro_batch": 8},
        "model": {"dim": 32, "layers": LAYERS, "heads": 4, "kv_heads": 2, "ffn_dim": 64, "vocab_multiple": 8},
        "optimizer": {"lr": 1e-2}, "schedule": {"steps": 80, "warmup_steps": 8}, "precision": "fp32",
        "checkpoint": {"every": 80}, "validation": {"every": 80, "tokens": 960},
        "log": {"every": 20, "tensorboard": False}, "device": "cpu", "threads": 1,
    }  # fmt: skip
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    train(load(TrainConfig, folder / "config.yaml"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be written to."""
    return shared(tmp_path_factory, "compressed", make_trained)


def compressed(trained: Path, out: Path, *arguments: str) -> tuple[Compression, Decoder]:
    """What the command prints, which is what the file holds, and the model that it wrote."""
    printed = command("compress", str(trained / "run"), str(out), *arguments, "--json")
    result = Compression.model_validate_json((out / "compression.json").read_bytes())
    assert Compression.model_validate_json(printed) == result
    config, _ = open_run(trained / "run")
    made = Decoder(config.model.model_copy(update=result.model), VOCAB, 0).eval()
    load_weights(made, Folder(out), tokenizer_json())
    return result, made


@pytest.fixture(scope="session")
def plain(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """The run's model, as `export` writes it."""
    out = tmp_path_factory.mktemp("plain") / "model"
    command("export", str(trained / "run"), str(out))
    config, _ = open_run(trained / "run")
    made = Decoder(config.model, VOCAB, 0).eval()
    load_weights(made, Folder(out), tokenizer_json())
    return made


@pytest.mark.parametrize(
    ("arguments", "most", "ratio"),
    [
        (("--method", "int8"), 0.01, (1.3, 2.0)),
        (("--method", "int4"), 0.3, (1.5, 4.0)),
        (("--method", "int4", "--group", "64"), 0.3, (1.5, 4.0)),
        (("--method", "gptq"), 0.3, (1.5, 4.0)),
        (("--method", "awq"), 0.3, (1.4, 4.0)),
        (("--method", "width", "--ffn-dim", "48", "--heads", "2"), 4.0, (1.1, 2.0)),
        (("--method", "magnitude"), 2.0, (1.2, 2.0)),
        (("--method", "wanda", "--share", "0.25"), 1.0, (1.0, 1.4)),
        (("--method", "wanda", "--pattern", "2:4"), 2.0, (1.2, 2.0)),
        (("--method", "depth", "--layers", "1"), 4.0, (1.1, 1.6)),
    ],
)  # fmt: skip
def test_a_run_is_compressed(
    trained: Path,
    plain: Decoder,
    tmp_path: Path,
    arguments: tuple[str, ...],
    most: float,
    ratio: tuple[float, float],
) -> None:
    result, made = compressed(trained, tmp_path / "out", *arguments)
    assert (result.name, result.step, result.settings.method) == ("small", 80, arguments[1])
    assert ratio[0] < result.bytes_before / result.bytes_after < ratio[1]
    assert result.sources.keys() == set(SOURCES)
    for one in result.sources.values():
        assert one.difference is not None and one.before is not None and one.after is not None
        assert one.difference.low is not None and one.difference.high is not None
        assert one.difference.low <= one.difference.value <= one.difference.high
        assert one.difference.value == pytest.approx(one.after.value - one.before.value, abs=1e-9)
        assert abs(one.difference.value) < most
        assert 0 < one.divergence.value < one.divergence_p99 and 0 < one.agreement.value <= 1
    assert result.difference is not None and result.difference.value == pytest.approx(
        sum(one.difference.value for one in result.sources.values() if one.difference) / 3
    )
    before, after = matrices(plain), matrices(made)
    assert result.weights == sum(value.numel() for value in after.values())
    assert torch.equal(made.embedding.weight, plain.embedding.weight)
    assert (result.calibration_rows > 0) == (arguments[1] in ("gptq", "awq", "wanda", "depth", "width"))
    assert result.speed_before > 0 and result.speed_after > 0
    if arguments[1] == "width":
        assert result.model == {"heads": 2, "kv_heads": 1, "head_dim": 8, "ffn_dim": 48}
        return
    if arguments[1] == "depth":
        assert len(result.importance) == LAYERS and result.model == {"layers": LAYERS - 1}
        assert result.removed == [result.importance.index(min(result.importance))]
        return
    for name, value in after.items():
        zero = (value == 0).float()
        if result.settings.pattern:
            assert (zero.view(-1, 4).sum(1) == 2).all(), name
        elif result.settings.share:
            assert (zero.sum(1) == round(result.settings.share * value.shape[1])).all(), name
        elif arguments[1] not in ("gptq", "awq"):
            bits = result.settings.bits or 0
            assert torch.equal(value, quantise(before[name], bits, result.settings.group).values()), name
        if result.settings.share or result.settings.pattern:
            assert torch.equal(value[value != 0], before[name][value != 0])
    share = result.settings.share or (0.5 if result.settings.pattern else 0)
    assert result.zeros >= share and (not share or result.zeros == pytest.approx(share))


def test_training_starts_from_what_is_written(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = command("compress", str(trained / "run"), str(out), "--method", "depth", "--layers", "2")
    assert f"--set init_from={out} --set model.layers=1" in printed and "removed: layers " in printed
    assert (
        "| mean of sources |" in printed and "MB in bfloat16" in printed and "0.00% of the weights" in printed
    )
    config = json.loads((trained / "config.yaml").read_text())
    config |= {"output": str(tmp_path / "healed"), "init_from": str(out), "name": "healed"}
    config["model"]["layers"] = 1
    config["optimizer"]["lr"], config["schedule"] = 2e-3, {"steps": 40, "warmup_steps": 4}
    config["validation"]["every"] = 40
    file = tmp_path / "healed.yaml"
    file.write_text(json.dumps(config))
    train(load(TrainConfig, file))
    healed = read_metrics(Folder(tmp_path / "healed"))
    sources = Compression.model_validate_json((out / "compression.json").read_bytes()).sources
    evaluated = json.loads(command("evaluate", str(tmp_path / "healed"), "--ngram-tokens", "0", "--json"))
    for name, one in sources.items():
        assert one.after is not None
        assert evaluated["sources"][name]["bits_per_byte"] < one.after.value
    assert healed[0]["loss"] > healed[-1]["loss"]
    with pytest.raises(UserError, match="holds a config.json already; name an empty folder"):
        command("compress", str(trained / "run"), str(out), "--method", "int8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("int3",), "compress: method: 'int3' is not allowed; did you mean 'int"),
        (("int8", "--group", "32"), r"compress: group: method int8 has none \(it has no option\): leave it out"),
        (("gptq", "--share", "0.5"), r"compress: share: method gptq has none \(it has group\)"),
        (("wanda", "--layers", "1"), r"compress: layers: method wanda has none \(it has share, pattern\)"),
        (("wanda", "--share", "0.5", "--pattern", "2:4"), "compress: share, pattern: give one of them"),
        (("magnitude", "--share", "1"), "compress: share: input should be less than 1"),
        (("magnitude", "--pattern", "4:4"), "compress: pattern: 4:4 keeps all weights"),
        (("magnitude", "--pattern", "half"), "compress: pattern: string should match pattern"),
        (("magnitude", "--pattern", "2:5"), "--pattern 2:5: layers.0.attention.q.weight has rows of 32 weights"),
        (("int4", "--group", "16"), "compress: group: 16 is not allowed"),
        (("depth",), "compress: layers: method depth needs how many layers to remove"),
        (("depth", "--heads", "2"), r"compress: heads: method depth has none \(it has layers\)"),
        (("width",), "compress: ffn_dim, heads, dim: method width needs one of these sizes"),
        (("width", "--ffn-dim", "64"), "--ffn-dim 64: the model has 64: give fewer"),
        (("width", "--heads", "1"), "--heads 1: 2 heads share a key, and go together: give a multiple of 2"),
        (("depth", "--layers", "3"), "--layers 3: the model has 3 layers, and one must be left"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(
    trained: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        command("compress", str(trained / "run"), str(tmp_path / "out"), "--method", *arguments)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_experts_are_rounded_and_their_activations_are_not_measured(
    config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    made = model_of(KINDS["glm4"][1])
    before = {name: value.clone() for name, value in matrices(made).items()}
    rewrite(made, CompressionSettings.model_validate({"method": "int8"}))
    for name, value in matrices(made).items():
        rows = before[name].flatten(0, -2)
        assert torch.equal(value.detach(), quantise(rows, 8).values().view(value.shape)), name
    settings = config(
        **{"schedule.steps": 1, "schedule.warmup_steps": 1, "model.moe": {"experts": 4, "ffn_dim": 24}}
    )
    train(TrainConfig.model_validate(settings))
    with pytest.raises(
        UserError, match="model.moe: activations of experts are not measured, as --method wanda needs"
    ):
        command("compress", str(tmp_path / "run"), str(tmp_path / "out"), "--method", "wanda")


def test_later_layers_are_calibrated_on_what_earlier_ones_give() -> None:
    """What a layer's product is rounded for are the inputs that the rounded layers before it give."""
    made, settings = model(kv_heads=2), CompressionSettings.model_validate({"method": "gptq"})
    rewrite(made, settings, Stream(made, batches(2)))
    again = model(kv_heads=2)
    with torch.no_grad():
        for name, value in matrices(again).items():
            if name.startswith("layers.0."):
                value.copy_(matrices(made)[name])
    stream = Stream(again, batches(2))
    stream.advance(again.layers["0"])
    measured = stream.measure(again.layers["1"], True)
    for name, of in measured.items():
        weight = matrices(again)[f"layers.1.{name}"].detach()
        assert of.hessian is not None
        wanted = gptq(weight, of.hessian, 4, 32).values()
        assert torch.equal(matrices(made)[f"layers.1.{name}"].detach(), wanted), name
