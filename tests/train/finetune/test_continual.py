"""A run that continues another one on other data: where it starts, what it replays, and that kills on both sides of the border
change nothing."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.optim.make import rate_at
from corpusmill.train.parallel.mesh import join
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import Trainer
from tests.forks import launch
from tests.train.conftest import write_shards
from tests.train.finetune.models import base_model
from tests.train.test_resume import outcome, run

Make = Callable[..., dict[str, Any]]
WSD = {"schedule.kind": "wsd", "schedule.decay_share": 0.25, "checkpoint.keep_last": 9}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A later crawl: one source, of another chain than all earlier ones."""
    place = Folder(tmp_path_factory.mktemp("crawl") / "shards")
    return write_shards(place, {"a": 1, "b": 1, "c": 1, "news": 4})


@pytest.fixture
def trunk(config: Make, tmp_path: Path) -> str:
    """A WSD run of 12 steps with a checkpoint every third, of which those of steps 3 to 9 come before the decay."""
    made = config(**WSD, **{"output": str(tmp_path / "trunk"), "schedule.steps": 12, "checkpoint.every": 3, "schedule.warmup_steps": 2})  # fmt: skip
    run(made)
    return str(made["output"])


@pytest.fixture
def later(config: Make, crawl: Folder, trunk: str, tmp_path: Path) -> Make:
    """A config that continues the trunk on the crawl."""

    def make(**settings: Any) -> dict[str, Any]:
        given = {
            "name": "later", "output": str(tmp_path / "later"), "init_from": {"run": trunk, "step": 9}, "data.shards": crawl.url,
            "data.weights": {"news": 1}, "data.replay": {"run": trunk, "share": 0.25}, "schedule.steps": 8, "checkpoint.every": 2,
        }  # fmt: skip
        return config(**{**given, **settings})

    return make


def begun(settings: dict[str, Any]) -> Trainer:
    """A run before its first step."""
    made = TrainConfig.model_validate(settings)
    trainer = Trainer(made, join(made), open_run_data(made))
    trainer.stream.close()
    return trainer


@pytest.mark.parametrize(("step", "taken"), [(3, 3), ("stable", 9), (None, 12)])
@pytest.mark.parametrize("optimizer", [False, True])
def test_it_starts_from_the_checkpoint_that_is_named(
    step: int | str | None, taken: int, optimizer: bool, later: Make, trunk: str
) -> None:
    made = later(init_from={"run": trunk, "step": step, "optimizer": optimizer})
    trainer = begun(made)
    found = checkpoint.load_step(Folder(trunk), taken)
    pieces = checkpoint.live(trainer.state.model, trainer.state.optimizer)
    wanted = checkpoint.read_tensors(found) | checkpoint.read_tensors(found, checkpoint.OPTIMIZER)
    assert sorted(pieces) == sorted(wanted)
    for name, piece in pieces.items():
        same = torch.equal(piece.local, wanted[name])
        assert same == (optimizer or "/" not in name), name
    phase = json.loads((Folder(made["output"]) / PHASE).read())["earlier"]
    tokens = taken * 8 * 24
    assert phase == {
        "run": "../trunk", "name": "tiny", "step": taken, "tokens": tokens, "config_hash": found.state["config_hash"],
        "weights_xxh3": found.weights_xxh3, "optimizer": optimizer,
    }  # fmt: skip


@pytest.mark.parametrize("every", [{"zero": 3}, {"tensor": 2}])
def test_the_optimizer_is_taken_into_another_layout(
    every: dict[str, int], later: Make, trunk: str, tmp_path: Path
) -> None:
    settings = {"init_from": {"run": trunk, "step": 9, "optimizer": True}, "optimizer.eps": 1e-4}
    run(later(**settings, output=str(tmp_path / "alone")))
    made = later(**settings, output=str(tmp_path / "two"), parallel=every, **{"data.micro_batch": 2})
    (tmp_path / "two.yaml").write_text(json.dumps(made))
    done = launch(2, "corpusmill.train", tmp_path / "two.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    ours, alone = (
        checkpoint.read_tensors(checkpoint.load_step(Folder(tmp_path / name), 8)) for name in ("two", "alone")
    )
    for name, value in ours.items():
        assert torch.allclose(value, alone[name], rtol=1e-4, atol=1e-4), name


def test_the_warm_up_rises_from_the_earlier_rate(later: Make) -> None:
    made = TrainConfig.model_validate(later(**{"schedule.warmup_from": 1e-3, "schedule.warmup_steps": 4}))
    assert [rate_at(made, step) for step in range(1, 5)] == pytest.approx([1.5e-3, 2e-3, 2.5e-3, 3e-3])
    with pytest.raises(UserError, match=r"warmup_from 0.1 exceeds optimizer.lr 0.003"):
        run_config(later(**{"schedule.warmup_from": 0.1}))
    with pytest.raises(UserError, match="warmup_from has no effect without a warm-up"):
        run_config(later(**{"schedule.warmup_from": 0.001, "schedule.warmup_steps": 0}))


def run_config(settings: dict[str, Any]) -> TrainConfig:
    from corpusmill.common.config import validate

    return validate(TrainConfig, settings, "config.yaml")


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_replay_has_its_share_in_the_earlier_proportions(share: float, later: Make, trunk: str) -> None:
    settings = {"data.replay": {"run": trunk, "share": share}, "data.lanes": 160}
    made = TrainConfig.model_validate(later(**settings))
    shards = open_run_data(made)
    assert list(shards.train) == ["a", "b", "c", "news", "wiki", "books", "code"]
    assert shards.replayed == pytest.approx({"wiki": share / 2, "books": share / 4, "code": share / 4})
    plan = make_plan(made.data, shards, made.seed)
    drawn = dict(zip((one.name for one in plan.sources), plan.trained(40).tolist(), strict=True))
    total = 40 * 8
    assert drawn == pytest.approx(
        {"news": total * (1 - share), "wiki": total * share / 2, "books": total * share / 4, "code": total * share / 4},
        abs=4,
    )  # fmt: skip
    # The same as a stream of its own, and each later stage of the mixture is scaled too.
    staged = {
        **made.data.model_dump(),
        "stages": [{"from_step": 3, "weights": {"a": 1, "b": 1}}],
        "lanes": None,
    }
    with StreamingTokens(seed=made.seed, **staged) as stream:
        counts = stream.plan.stages[1].counts
        named = dict(zip((one.name for one in stream.plan.sources), counts, strict=True))
        assert named["a"] == named["b"] and not named["news"]
        assert named["wiki"] == pytest.approx(2 * named["books"], abs=1)
        assert named["wiki"] / sum(counts) == pytest.approx(share / 2, rel=0.02)


def test_replay_reaches_back_through_all_phases(later: Make, trunk: str, tmp_path: Path) -> None:
    first = later()
    run(first)
    again = {"run": first["output"], "share": 0.5, "prefix": "old-"}
    settings = {"data.replay": again, "init_from": first["output"], "output": str(tmp_path / "third")}
    third = TrainConfig.model_validate(later(**settings))
    replayed = open_run_data(third).replayed
    assert list(replayed) == ["old-news", "old-wiki", "old-books", "old-code"]
    assert sum(replayed.values()) == pytest.approx(0.5) and replayed["old-news"] == pytest.approx(0.375)
    run(later(**settings))
    rows = read_metrics(Folder(tmp_path / "third"))
    assert set(rows[-1]["loss_per_source"]) <= {"news", *replayed}
    assert {"a", "news", "old-news", "old-code"} <= set(rows[-1]["validation"])
    # Found again after all of it was moved.
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("trunk", "later", "third"):
        shutil.move(tmp_path / name, moved / name)
    config, _ = open_run(moved / "third")
    assert open_run_data(config).replayed == replayed


def test_killed_on_both_sides_of_the_border_it_ends_as_if_it_had_not_been(
    config: Make, later: Make, tmp_path: Path
) -> None:
    def chain(place: Path, *kills: tuple[int, int]) -> None:
        trunk = config(**WSD, **{"output": str(place / "trunk"), "schedule.steps": 12, "checkpoint.every": 3, "model.dropout": 0.1})  # fmt: skip
        start = {"run": str(place / "trunk"), "step": 9, "optimizer": True}
        again = later(init_from=start, output=str(place / "later"), **{"data.replay.run": start["run"], "model.dropout": 0.1})  # fmt: skip
        place.mkdir()
        for number, made in enumerate((trunk, again)):
            file = place / f"{number}.yaml"
            file.write_text(json.dumps(made))
            for phase, step in kills:
                if phase == number:
                    done = launch(1, "tests.train.finetune.phases", file, step)
                    assert done.codes == [-signal.SIGKILL], done.stderr
            done = launch(1, "tests.train.finetune.phases", file)
            assert done.returncode == 0, done.stderr

    chain(tmp_path / "unbroken")
    # In the middle of the first phase; before the second one's first checkpoint, at its first step, and after it.
    chain(tmp_path / "killed", (0, 5), (0, 11), (1, 0), (1, 1), (1, 5))
    for name, steps in (("trunk", 12), ("later", 8)):
        found = outcome(str(tmp_path / "killed" / name), steps)
        assert found == outcome(str(tmp_path / "unbroken" / name), steps), name
    phases = [json.loads((tmp_path / name / "later" / PHASE).read_text())["earlier"] for name in ("killed", "unbroken")]  # fmt: skip
    keys = ("run", "step", "tokens", "weights_xxh3", "optimizer")
    assert [phases[0][key] for key in keys] == [phases[1][key] for key in keys]


def test_what_does_not_fit_is_refused_in_one_line(later: Make, trunk: str, tmp_path: Path) -> None:
    def message(**settings: Any) -> str:
        with pytest.raises(UserError) as caught:
            begun(later(**settings, output=str(tmp_path / f"refused-{len(list(tmp_path.iterdir()))}")))
        return str(caught.value)

    start = {"run": trunk, "optimizer": True}
    assert "init_from.step 4: no such checkpoint in" in message(init_from={"run": trunk, "step": 4})
    assert "optimizer.kind is adamw there and lion here" in message(
        init_from=start, **{"optimizer.kind": "lion"}
    )
    model = base_model(tmp_path / "model")
    whole = {"model": {"dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "vocab_multiple": 8}}
    assert "is no run's folder: leave step out" in message(init_from={"run": model, "step": 3}, **whole)
    same = {"data.shards": json.loads((tmp_path / "trunk/config.json").read_text())["data"]["shards"], "data.weights": None}  # fmt: skip
    assert "both have a source 'wiki': set data.replay.prefix" in message(**same)
    other = write_shards(Folder(tmp_path / "other"), {"news": 1})
    text = (other / "tokenizer.json").read().replace(b"\\u0101", b"\\u0401")
    text = text if b"\\u0401" in text else text.replace("ā".encode(), "Ё".encode())
    change_tokenizer(other, text)
    assert "has another tokenizer than" in message(**{"data.shards": other.url})
    with pytest.raises(UserError, match="adapter: its parameters are new ones"):
        run_config(later(init_from=start, adapter={}))
    decayed = tmp_path / "decayed"
    shutil.copytree(trunk, decayed)
    for step in (3, 6, 9):
        shutil.rmtree(decayed / f"checkpoints/step-{step:06d}")
    assert "had the full learning rate 0.003: name a step, and set schedule.warmup_from" in message(
        init_from={"run": str(decayed), "step": "stable"}
    )


def change_tokenizer(shards: Folder, data: bytes) -> None:
    """Give a shard set another tokenizer.json, and the index its checksum."""
    from corpusmill.common.ids import checksum

    before = (shards / "tokenizer.json").read()
    (shards / "tokenizer.json").write(data)
    index = (shards / "index.json").read().replace(checksum(before).encode(), checksum(data).encode())
    (shards / "index.json").write(index)
