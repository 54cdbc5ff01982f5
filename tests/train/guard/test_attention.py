"""Warnings of collapsing attention: once for each time that a layer goes beyond a bound, and never for noise of a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.guard import CollapseConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.guard.attention import Collapse, collapses, message, newest
from corpusmill.train.log.dashboard import gather
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.log.plots import History
from corpusmill.train.trainer import train
from tests.train.log.made import make_run

CONFIG = CollapseConfig(entropy_share=0.2, attention_logit=100, activation=50, rows=3)


def row(step: int, share: float = 0.9, logit: float = 5.0, activation: float = 3.0) -> dict[str, Any]:
    """Of two layers, of which the second has these numbers."""
    return {
        "step": step,
        "attention_entropy_share": {"layer_0": 0.8, "layer_1": share},
        "attention_logit_max": {"layer_0": 4.0, "layer_1": logit},
        "activation_peak": {"layer_0": 2.0, "layer_1": activation},
    }


def walked(rows: list[dict[str, Any]], config: CollapseConfig = CONFIG) -> list[Collapse]:
    """What a run finds, row after row."""
    return [found for end in range(1, len(rows) + 1) for found in newest(rows[:end], config)]


def by_columns(rows: list[dict[str, Any]], config: CollapseConfig = CONFIG) -> list[Collapse]:
    """What the dashboard finds."""
    history = History()
    for one in rows:
        history.add(one)
    return collapses({name: history.column(name) for name in history.names}, config)


def test_a_healthy_run_has_no_warning() -> None:
    assert walked([row(step) for step in range(10, 200, 10)]) == []


def test_a_collapse_is_named_once_until_it_is_over() -> None:
    shares = [0.9, 0.1, 0.9, 0.1, 0.1, 0.15, 0.05, 0.1, 0.3, 0.1, 0.1, 0.1]
    rows = [row(10 * number, share) for number, share in enumerate(shares, 1)]
    found = walked(rows)
    assert [(one.step, one.layer, one.value) for one in found] == [(60, 1, 0.15), (120, 1, 0.1)]
    assert found == by_columns(rows)


def test_logits_and_activations_have_bounds_of_their_own() -> None:
    rows = [row(step, logit=120, activation=60) for step in (1, 2, 3, 4)]
    found = walked(rows)
    assert [(one.step, one.signal, one.limit) for one in found] == [
        (3, "activation_peak", 50),
        (3, "attention_logit_max", 100),
    ]
    assert message(found) == (
        "highest attention logit of layer 1: 120 (guard.collapse.attention_logit 100); largest activation, mean of the positions, of layer 1:"
        " 60 (guard.collapse.activation 50)"
    )
    off = CollapseConfig(entropy_share=None, attention_logit=None, activation=None)
    assert walked(rows, off) == []


def test_layers_share_a_message() -> None:
    found = [
        Collapse(7, 2, "attention_entropy_share", 0.1, 0.2),
        Collapse(7, 3, "attention_entropy_share", 0.05, 0.2),
    ]
    words = "attention entropy, as a share of its maximum, of layers 2, 3: 0.05 (guard.collapse.entropy_share 0.2)"
    assert message(found) == words


def test_rows_without_a_measurement_do_not_count() -> None:
    """Those of a validation between two logged steps; and a value that was not finite is none."""
    rows = [row(1, 0.1), {"step": 2}, row(3, 0.1), row(4, 0.1), {"step": 5}, row(6, 0.1)]
    assert [one.step for one in walked(rows)] == [4]
    for value in (None, float("nan"), float("-inf")):
        rows[2]["attention_entropy_share"]["layer_1"] = value
        assert [one.step for one in by_columns(rows)] == [6]
    assert walked([row(1, activation=float("inf"))], CollapseConfig(rows=1)) == []


@given(st.lists(st.sampled_from([0.1, 0.2, 0.5]), max_size=30), st.integers(1, 4))
def test_the_page_and_the_run_agree(shares: list[float], patience: int) -> None:
    config = CollapseConfig(rows=patience)
    rows = [row(number, share) for number, share in enumerate(shares, 1)]
    found = walked(rows, config)
    assert found == by_columns(rows, config)
    for one in found:
        window = np.array(shares[max(one.step - 1 - patience, 0) : one.step])
        assert (window[-patience:] < 0.2).all() and (len(window) == patience or window[0] >= 0.2)


def test_a_run_whose_attention_collapses_says_so(
    write_config: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bound that every run is beyond from the first row on, and a real run."""
    file = write_config(**{"guard": {"collapse": {"attention_logit": 1e-9, "rows": 2}}})
    train(load(TrainConfig, file))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("guard:")]
    assert len(lines) == 1 and lines[0].startswith("guard: step 2: highest attention logit of layers 0, 1: ")
    assert lines[0].endswith("lower optimizer.lr, set model.qk_norm, or warm up for longer")
    rows = read_metrics(Folder(tmp_path / "run"))
    assert all(0 < row["attention_entropy_share"]["layer_0"] <= 1.001 for row in rows)
    config = load(TrainConfig, file)
    page = gather(Folder(tmp_path / "run"), config, History().read(Folder(tmp_path / "run")), 0)
    assert [(event["step"], event["kind"]) for event in page["events"]] == [(2, "warning")]


def test_marks_stand_between_the_entries_of_the_journal(tmp_path: Path) -> None:
    run = Folder(tmp_path / "run")
    settings = {"guard": {"collapse": {"activation": 10.0, "rows": 1}}}
    journal = [
        {"entry": 1, "step": 900, "kind": "rollback", "to_step": 840},
        {"entry": 2, "step": 860, "kind": "skip"},
    ]
    config = make_run(run, rows=20, journal=journal, **settings)
    history = History()
    for step, activation in ((500, 5.0), (870, 11.0), (1000, 9.0), (1200, 12.0)):
        history.add({"step": step, "tokens": step, "activation_peak": {"layer_0": activation}})
    events = gather(run, config, history, 0)["events"]
    assert [event["step"] for event in events] == [900, 860, 870, 1200]
    assert (
        "largest activation, mean of the positions, of layer 0: 11 (guard.collapse.activation 10)"
        in events[2]["words"]
    )
    assert "lower optimizer.lr" in events[2]["why"]
    disabled = config.model_copy(update={"guard": config.guard.model_copy(update={"enabled": False})})
    assert len(gather(run, disabled, history, 0)["events"]) == 2
