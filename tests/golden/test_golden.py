"""The quick start's bytes and four layouts' losses and weights are those recorded in `published.json` and `training.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.record import LAYOUTS, PUBLISHED, TRAINING, learned, machine, published

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_quick_start_publishes_the_same_bytes(quickstart_run: Path) -> None:
    wanted, found = json.loads(PUBLISHED.read_text()), published(quickstart_run)
    assert [name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_thirty_steps_learn_the_same(layout: str, quickstart_run: Path, tmp_path: Path) -> None:
    recorded = json.loads(TRAINING.read_text())
    wanted, found = recorded[layout], learned(quickstart_run / "shards", tmp_path, layout)
    if recorded["machine"] == machine():
        assert found == wanted
    assert len(found["losses"]) == 30
    assert found["losses"] == pytest.approx(wanted["losses"], rel=1e-5)
    assert set(found["weights"]) == set(wanted["weights"])
    for name, values in wanted["weights"].items():
        assert found["weights"][name] == pytest.approx(values, rel=1e-3, abs=1e-3), name
