"""What the bench beside TRL gives to it: the documents that training reads, in the columns of TRL's collators."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import _finetune_trl, finetune
from tests.train.finetune.models import MODEL, base_model


@pytest.mark.parametrize("loss", ["sft", "dpo", "kto"])
def test_documents_are_those_of_the_lines(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "LENGTH", 4096)  # of bytes
    run = base_model(tmp_path / "base")
    files = finetune.write_lines(tmp_path, 6)
    file, out = str(finetune.file_of(loss, files)), str(tmp_path / "out")
    config = finetune.config_of(run, file, loss, out, {"model": {**MODEL, "max_positions": 4096}})
    assert config.data.global_batch == config.data.micro_batch >= 1
    rows = _finetune_trl.rows_of(finetune.documents(config), loss)
    assert len(rows) == 6
    for row in rows:
        if loss == "sft":
            first = row["completion_mask"].index(1)
            assert row["completion_mask"] == [0] * first + [1] * (len(row["input_ids"]) - first)
            continue
        answers = [row[key] for key in row if key.endswith("_ids") and key != "prompt_ids"]
        assert len(answers) == 2 and all(answers) and answers[0] != answers[1]
