"""`corpusmill checkpoint`: what there is, what is damaged, and the same in other files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.tools import reshard
from tests.command_line import CliRunner
from tests.train.checkpoint.test_store import cut, flip, place, run, trained  # noqa: F401 (run: a fixture)


def command(*arguments: Any, fails: type[Exception] | None = None) -> str:
    done = CliRunner().invoke(build(), ["checkpoint", *map(str, arguments)])
    if fails:
        assert isinstance(done.exception, fails), done.output
        return str(done.exception)
    assert done.exit_code == 0, done.exception
    return done.output


def test_list_tells_whole_from_damaged(run: Folder) -> None:  # noqa: F811
    cut(place(run, 2, "model.safetensors"))
    place(run, 3, "manifest.json").unlink()
    rows = json.loads(command("list", run, "--json"))["checkpoints"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[0]["problem"] is None and rows[0]["tensors"] == 44 and rows[0]["files"] == 4
    assert rows[0]["bytes"] > 38_000
    assert re.match(r"model.safetensors: \d+ bytes, not \d+", rows[1]["problem"])
    assert rows[2]["problem"] == "it has no manifest"
    assert "| 1    |     4 | 0.0 |      44 |" in command("list", run)


def test_verify_names_each_bad_file(run: Folder) -> None:  # noqa: F811
    assert json.loads(command("verify", run, "--json")) == {
        "run": run.url, "files": 12, "bytes": sum(f.stat().st_size for f in Path(run.url).rglob("*.*") if f.name != "manifest.json"),
        "notes": [], "problems": [],
    }  # fmt: skip
    flip(place(run, 1, "model.safetensors"))
    flip(place(run, 2, "tensors.json"))
    place(run, 2, "optimizer.safetensors").unlink()
    place(run, 3, "manifest.json").unlink()
    output = command("verify", run, fails=WorkError).splitlines()
    assert [line.partition("checkpoints/")[2] for line in output] == [
        "step-000001: model.safetensors: not the bytes published",
        "step-000002: optimizer.safetensors: missing",
        "step-000002: tensors.json: not the bytes published",
    ]
    assert "step-000001" in command("verify", run, "--step", 1, fails=WorkError)
    assert "it has no manifest" in command("verify", run, "--step", 3, fails=WorkError)
    assert (
        command("verify", run, "--step", 9, fails=UserError)
        == "--step 9: no such checkpoint; there are 1, 2, 3"
    )
    assert "no checkpoints there" in command("verify", run / "nowhere", fails=UserError)


@pytest.mark.parametrize(
    ("options", "files"),
    [(["--files", 1], 2), (["--files", 3], 6), (["--max-bytes", 1500], 2 + 20), (["--step", 3], 2)],
)
def test_resharded_is_the_same_in_other_files(
    run: Folder, tmp_path: Path, options: list[Any], files: int, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(reshard, "SLAB", 100)  # bytes: a row or two at once
    (run / "config.json").write(b"{}")
    out = Folder(tmp_path / "out")
    result = json.loads(command("reshard", run, out, *options, "--json"))
    assert result["step"] == 3 and (out / "config.json").exists()
    if "--max-bytes" in options:
        sizes = {name: place(out, 3, name).stat().st_size for name in result["files"]}
        assert (
            len(sizes) > 10 and sum(size > 1500 + 3000 for size in sizes.values()) <= 3
        )  # one large tensor each
    else:
        assert len(result["files"]) == files
    before, after = checkpoint.load_step(run, 3), checkpoint.load_step(out, 3)
    assert after.state == before.state and after.table.keys() == before.table.keys()
    for part in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        theirs = checkpoint.read_tensors(after, part)
        for name, tensor in checkpoint.read_tensors(before, part).items():
            assert torch.equal(tensor, theirs[name]), name
    checkpoint.restore(after, *trained(8))
    assert "holds a checkpoint already" in command("reshard", run, out, fails=UserError)


def test_a_damaged_newest_one_is_reported(run: Folder, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    flip(place(run, 3, "model.safetensors"))
    assert newest_checkpoint(run).step == 2
    output = capsys.readouterr().err
    assert "step-000003: not taken: model.safetensors: not the bytes published; step 2 is" in output


def test_reshard_says_what_it_cannot(run: Folder, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    assert "give one of them" in command("reshard", run, out, "--files", 2, "--max-bytes", 9, fails=UserError)
    assert "there are 1, 2, 3" in command("reshard", run, out, "--step", 7, fails=UserError)
    flip(place(run, 3, "model.safetensors"))
    assert "step-000003: not taken" in command("reshard", run, out, "--step", 3, fails=WorkError)
    assert "step 2 in 2 files" in command("reshard", run, out)
