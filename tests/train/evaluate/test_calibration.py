"""A calibrated model is found calibrated, one that is too sure of itself is not, by how much it is; and tables are what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import CalibrationResults, Item
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.batches import whole
from corpusmill.train.evaluate.calibration import (
    CELLS,
    Cells,
    calibrated_error,
    calibration_error,
    fit_temperature,
    next_token_cells,
    of_cells,
    of_choices,
    reliability,
)
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
from tests.train.evaluate.compare.test_compare import evaluated, scorer_of

Make = Callable[..., dict[str, Any]]


def calibrated(rng: np.random.Generator, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    confidence = rng.uniform(0.25, 1, n)
    return confidence, rng.random(n) < confidence


def items(rng: np.random.Generator, n: int, temperature: float) -> list[Item]:
    """Questions with 2 to 5 choices, right by the softmax of logits that the model reports `temperature` times as large."""
    found = []
    for number in range(n):
        logits = rng.normal(size=rng.integers(2, 6)) * 1.5
        shares = np.exp(logits) / np.exp(logits).sum()
        found.append(
            Item(
                id=str(number), cluster=str(number), prompt="", choices=["x"] * len(logits),
                logprobs=(logits * temperature - 40).tolist(), gold=int(rng.choice(len(logits), p=shares)), metrics={},
            )
        )  # fmt: skip
    return found


def test_a_calibrated_model_has_no_error_beyond_chance() -> None:
    rng = np.random.default_rng(1)
    above, errors = 0, []
    for _ in range(300):
        found = of_cells(Cells.of(*calibrated(rng, 400)))
        above += found.ece > found.ece_calibrated_high
        errors.append(found.ece)
    assert 0.02 < above / 300 < 0.09  # 5 %
    assert np.mean(errors) == pytest.approx(found.ece_calibrated, rel=0.05)
    large = of_cells(Cells.of(*calibrated(rng, 200_000)))
    assert large.ece < 0.005 and large.accuracy == pytest.approx(large.confidence, abs=0.005)
    assert calibrated_error(Cells.of(*calibrated(rng, 200_000)))[0] < 0.004


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    rng = np.random.default_rng(2)
    found = of_choices(items(rng, 6000, temperature))
    assert found is not None and found.fitted is not None and 2800 < found.fitted.n < 3200
    assert found.fitted.temperature == pytest.approx(temperature, rel=0.08)
    assert found.fitted.ece_after < 0.045 and found.fitted.nll_after <= found.fitted.nll_before + 1e-3
    if temperature == 1:
        assert found.ece < found.ece_calibrated_high
    else:
        assert (
            found.ece > 3 * found.ece_calibrated_high and found.fitted.ece_before > 3 * found.fitted.ece_after
        )
        assert (found.confidence > found.accuracy) == (temperature > 1)


def test_figures_by_hand() -> None:
    """Ten answers at 0.8 of which six are right, ten at 0.6 of which six are."""
    cells = Cells.of([0.8] * 10 + [0.6] * 10, [1] * 6 + [0] * 4 + [0] * 4 + [1] * 6)
    table = reliability(cells, 2)
    assert [(b.n, b.confidence, b.accuracy) for b in table] == [
        (10, pytest.approx(0.6), 0.6),
        (10, pytest.approx(0.8), 0.6),
    ]
    assert calibration_error(table) == pytest.approx(0.1) == calibration_error(reliability(cells, 5, "width"))
    assert len(reliability(cells, 15)) == 2  # answers of one confidence stay together
    assert len(reliability(cells, 1, "width")) == 1
    assert reliability(Cells.of([1.0], [1]), 15, "width")[0].accuracy == 1
    certain = calibrated_error(Cells.of([1.0] * 5, [1] * 5))
    assert certain == (0, 0)

    two = Item(
        id="a",
        cluster="a",
        prompt="",
        choices=["x", "y"],
        logprobs=[np.log(0.3), np.log(0.1)],
        gold=1,
        metrics={},
    )
    found = of_choices([two])
    assert found is not None and found.fitted is None  # one cluster has no halves
    assert found.brier is not None and found.brier.value == pytest.approx(0.75**2 * 2)
    assert found.nll is not None and found.nll.value == pytest.approx(-np.log(0.25))
    assert (found.accuracy, found.confidence) == (0, pytest.approx(0.75)) and found.ece == pytest.approx(0.75)
    without = two.model_copy(update={"gold": None})
    assert of_choices([without]) is None


def several(number: int, sums: list[float], golds: list[int]) -> Item:
    return Item(
        id=str(number), cluster=str(number), prompt="", choices=["x"] * len(sums), logprobs=np.log(sums).tolist(), gold=golds[0],
        golds=golds, metrics={},
    )  # fmt: skip


def test_each_of_several_right_choices_is_right() -> None:
    found = of_choices([several(n, [0.2, 0.5, 0.3], [0, 1]) for n in range(40)])
    assert found is not None and found.accuracy == 1.0 and found.confidence == pytest.approx(0.5)
    # One outcome: right with probability 0.7, the third choice with 0.3.
    assert found.brier is not None and found.brier.value == pytest.approx(0.3**2 * 2)
    assert found.nll is not None and found.nll.value == pytest.approx(-np.log(0.7))
    assert found.fitted is not None and found.fitted.nll_after < found.fitted.nll_before
    certain = of_choices([several(0, [0.2, 0.8], [1, 0])])
    assert certain is not None and certain.nll is not None and certain.nll.value == pytest.approx(0)


def test_the_temperature_of_several_right_choices_is_the_likeliest() -> None:
    rng = np.random.default_rng(6)
    logs = rng.normal(size=(300, 5)) * 3
    golds = np.zeros(logs.shape, dtype=bool)
    for row, (shares, count) in enumerate(zip(np.exp(logs / 2), rng.integers(1, 4, 300), strict=True)):
        golds[row, rng.choice(5, count, replace=False, p=shares / shares.sum())] = True
    found = fit_temperature(logs, golds)

    def likelihood(temperature: float) -> float:
        shares = np.exp((logs - logs.max(1, keepdims=True)) / temperature)
        return float(np.log((shares * golds).sum(1) / shares.sum(1)).sum())

    assert all(likelihood(found) >= likelihood(other) - 1e-9 for other in np.geomspace(0.05, 1e3, 400))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=50),
    st.randoms(),
)
def test_the_order_of_items_does_not_matter_and_none_is_lost(
    answers: list[tuple[float, bool]], random: Any
) -> None:
    shuffled = list(answers)
    random.shuffle(shuffled)
    for by in ("mass", "width"):
        table = reliability(Cells.of(*zip(*answers, strict=True)), 15, by)  # type: ignore[arg-type]
        assert table == reliability(Cells.of(*zip(*shuffled, strict=True)), 15, by)  # type: ignore[arg-type]
        assert sum(b.n for b in table) == len(answers) and all(
            b.low <= b.confidence <= b.high + 1e-12 for b in table
        )


def test_temperatures_have_ends() -> None:
    sure = np.log(np.array([[0.9, 0.1], [0.8, 0.2]]))
    assert fit_temperature(sure, np.array([[True, False]] * 2)) == pytest.approx(
        1 / 1000
    )  # always right: the surer the better
    assert fit_temperature(sure, np.array([[False, True]] * 2)) == pytest.approx(1000)


def test_halves_are_of_clusters_and_depend_on_their_names_alone() -> None:
    rng = np.random.default_rng(3)
    given = [item.model_copy(update={"cluster": str(n // 10)}) for n, item in enumerate(items(rng, 400, 2.0))]
    found, again = of_choices(given), of_choices(given[::-1])
    assert found is not None and again is not None and found.fitted is not None and again.fitted is not None
    assert found.fitted.n == again.fitted.n and found.fitted.n % 10 == 0
    assert found.fitted.temperature == pytest.approx(again.fitted.temperature)
    assert found.nll is not None and found.nll.clusters == 40


def test_next_tokens_are_counted_at_every_position(shards: Folder, config: Make) -> None:
    scorer = scorer_of(config)
    source = open_shards(shards.url).validation["wiki"]
    cells = next_token_cells(scorer, source, 3)
    batches = list(whole(source, 24))
    surprise = np.concatenate(
        [
            found[batch["labels"] >= 0].numpy()
            for found, batch in zip(scorer.surprises_of_likeliest(batches), batches, strict=True)
        ]
    )
    direct = Cells.of(np.exp(-np.abs(surprise.astype(np.float64))), ~np.signbit(surprise))
    assert cells.n.sum() == direct.n.sum() == source.index.ntokens
    assert cells.right.sum() == direct.right.sum() and cells.confidence.sum() == pytest.approx(
        direct.confidence.sum()
    )
    one, other = of_cells(cells), of_cells(direct)
    assert one.ece == pytest.approx(other.ece, abs=2 / CELLS + 0.005) and one.n == other.n


def test_the_command_writes_and_prints(write_config: Callable[..., Path], tmp_path: Path) -> None:
    file = write_config()
    train(load(TrainConfig, file))
    app = typer.Typer()
    register(app)

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["calibration", str(file), *arguments])
        if done.exception:
            raise done.exception
        return done.stdout

    with pytest.raises(UserError, match="no task with choices was evaluated; .* --next-token"):
        command()
    found = CalibrationResults.model_validate_json(command("--next-token", "--json"))
    assert (
        set(found.next_token) == {"wiki", "books", "code"} and found.next_token_step == 20 and not found.tasks
    )
    evaluated(tmp_path / "run", {"task": [1.0, 0.0]})
    lines = tmp_path / "run/evaluation/items/task.jsonl"
    lines.write_text("\n".join(item.model_dump_json() for item in items(np.random.default_rng(4), 80, 2.0)))
    printed = command()
    stored = json.loads((tmp_path / "run/evaluation/calibration.json").read_text())
    assert stored["tasks"]["task"]["n"] == 80 and stored["tasks_step"] == 7
    assert f"| {stored['tasks']['task']['ece']:.4f} |" in printed and "task: reliability" in printed
