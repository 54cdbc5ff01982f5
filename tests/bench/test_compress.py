"""The larger model of the compress bench at a small size: made, trained, compared, kept and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import _compress_trained as trained

SMALL = (
    "model.dim=32", "model.layers=1", "schedule.steps=4", "schedule.warmup_steps=1", "data.sequence_length=64", "data.global_batch=4",
    "data.micro_batch=4", "validation.tokens=256", "validation.every=null",
)  # fmt: skip


def test_a_model_is_trained_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def texts(place: str) -> list[str]:
        return [file.read_text("utf-8") for file in sorted(trained.ROOT.glob(place))]

    found = {"docs": lambda: iter(texts("docs/*.md")), "code": lambda: iter(texts("bench/*.py"))}
    monkeypatch.setattr(trained.natural, "sources", lambda: found)
    monkeypatch.setattr(trained.natural, "available", lambda: True)
    monkeypatch.setattr(trained, "RECIPE", trained.RECIPE.replace("8192", "512"))
    monkeypatch.setattr(trained, "KEPT", tmp_path / "kept.json")
    trained.measure(tmp_path, *SMALL)
    head, table = trained.lines()
    assert capfd.readouterr().out == f"{head}\n{table}\n"
    kept = json.loads(trained.KEPT.read_text("utf-8"))
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == [
        f"| {row['way']}" for row in kept["rows"]
    ]
    assert all(0 < row["kl"] < 1 and row["speed"] > 0 for row in kept["rows"])
    assert (
        kept["tokens"] == 4 * 4 * 64 and f"{kept['tokens'] / kept['parameters']:.1f} for each of its" in head
    )
