"""`corpusmill ablate` on corpora whose answer is known, and as a user would: twice, after a kill, with a wrong name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench._planted_truth import cases
from corpusmill.ablate.arms import CONTROL, FULL
from corpusmill.schemas.ablation import Ablation
from tests.train.test_commands import command


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ablation, Path, int]]:
    """Of each corpus what the command found, its folder, and the sign that is right."""
    folder = tmp_path_factory.mktemp("planted")
    found = {}
    for case in cases(folder):
        file = folder / f"{case.name}.yaml"
        file.write_text(yaml.safe_dump(case.recipe))
        out = folder / f"{case.name}-out"
        result = json.loads(command("ablate", str(file), str(out), "--without", case.stage, "--json"))
        found[case.name] = Ablation.model_validate(result), out, case.sign
    return found


def test_what_was_planted_is_found_with_its_sign_and_nothing_else(planted: dict[str, Any]) -> None:
    for name, (found, _, sign) in planted.items():
        whole, control, arm = found.arms
        assert whole.difference is None and (whole.name, control.name) == (FULL, CONTROL)
        d = arm.difference
        if sign:
            assert d.verdict == "worse" and d.low > 0, name
        else:
            assert d.verdict in ("equal", "unclear") and d.low <= 0 <= d.high, name
        assert control.difference.low < 0 < control.difference.high, name
    assert planted["everything"][0].arms[2].difference.value == 0  # the same documents, in the same halves
