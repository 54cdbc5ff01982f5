"""`corpusmill why` on a score over signals: the three that weighed most, and why they cannot be given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from corpusmill.__main__ import build
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter.quality_signals.model import Curve, SignalModel, to_bytes
from corpusmill.pipeline.inspect.why import explain, why
from tests.command_line import CliRunner
from tests.pipeline.filter.helpers import PROSE

MENU = "Home\nAbout us\nContact\nLog in\nSign up\nCart (0)\nRead more...\nPrivacy policy\nTerms of use\n"
SETTINGS = ["--set", "filter.rules=[]", "--set", "filter.language=null", "--set", "filter.toxicity=null"]


def filtered(folder: Path, *settings: str) -> Folder:
    """The output of `corpusmill filter` on a page of prose and a menu."""
    (folder / "in.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in (("prose", PROSE), ("menu", MENU)))
    )
    more = [part for one in settings for part in ("--set", one)]
    done = CliRunner().invoke(
        build(),
        ["filter", str(folder / "in.jsonl"), str(folder / "out"), "--id-column", "id", *SETTINGS, *more],
    )
    assert done.exit_code == 0, done.output
    return Folder(folder / "out")


def test_three_signals_and_the_reason_first(tmp_path: Path) -> None:
    run = filtered(tmp_path, "filter.quality_signals.remove_below=0.5")
    (menu,), (prose,) = why(run, "menu"), why(run, "prose")
    for row in (menu, prose):
        weighed = row["weighed"]
        assert weighed["score"] == row["signals"]["quality_signals.score"]
        assert weighed["score"] == pytest.approx(1 / (1 + np.exp(-weighed["log_odds"])), abs=1e-6)
        sizes = [abs(one["contribution"]) for one in weighed["strongest"]]
        assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)
        assert all(
            one["value"] == row["signals"][one["signal"]] and one["words"] for one in weighed["strongest"]
        )
    lines = explain(menu).splitlines()
    removed = next(n for n, line in enumerate(lines) if "by quality_signals.remove_below (value 0.0" in line)
    assert lines[removed + 1].startswith("  weighed     most in quality_signals.score = 0.0")
    assert all(line.startswith("    against   -") for line in lines[removed + 2 : removed + 5])
    kept = explain(prose).splitlines()
    assert any(
        line.startswith("    for it    +0.") and "lines that C4's rules keep: c4.kept_lines = 1" in line
        for line in kept
    )
    shown = CliRunner().invoke(build(), ["why", "menu", "--run", run.url]).output
    assert "weighed     most in quality_signals.score" in shown


def test_without_fasttext_its_score_weighs_nothing(tmp_path: Path) -> None:
    (row,) = why(filtered(tmp_path, "filter.quality=null"), "prose")
    assert len(row["weighed"]["strongest"]) == 3


def test_a_model_that_is_gone_or_another_is_said_in_a_line(tmp_path: Path) -> None:
    own = SignalModel("short", 0.0, (Curve("gopher.word_count", "1", "down", (0.0, 100.0), (2.0, -2.0)),))
    model = tmp_path / "mine.json"
    model.write_bytes(to_bytes(own))
    run = filtered(tmp_path, f"filter.quality_signals.model={model}")
    (row,) = why(run, "menu")
    assert [one["signal"] for one in row["weighed"]["strongest"]] == ["gopher.word_count"]
    assert "for it    +1." in explain(row)
    model.write_bytes(to_bytes(own._replace(bias=1.0)))
    (row,) = why(run, "menu")
    assert (
        "mine.json is another model than the run's (xxh3 " in explain(row)
        and "strongest" not in row["weighed"]
    )
    model.unlink()
    text = explain(why(run, "menu")[0])
    assert (
        "weighed     unknown what in quality_signals.score = 0." in text and "mine.json: no such file" in text
    )


def test_no_score_no_line(tmp_path: Path) -> None:
    run = filtered(tmp_path, "filter.quality_signals=null")
    assert "weighed" not in why(run, "menu")[0]


def test_a_manifest_that_names_no_model_is_said_in_a_line(tmp_path: Path) -> None:
    run = filtered(tmp_path)
    file = next(path for path in (tmp_path / "out").rglob("manifest.json") if '"models"' in path.read_text())
    manifest = json.loads(file.read_text())
    for models in (None, {}, {"quality_signals": 3}):
        file.write_text(json.dumps({**manifest, "params": {**manifest["params"], "models": models}}))
        assert "weighed     unknown what in quality_signals.score = 0." in explain(why(run, "menu")[0])
    file.unlink()
    assert "the filter's manifest is not there" in explain(why(run, "menu")[0])
