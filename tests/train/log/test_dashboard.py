"""The command, in this process and in one of its own; any store; live beside a run, and by the run itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.log import dashboard as live_module
from corpusmill.train.log.dashboard import Live
from corpusmill.train.log.plots import History
from corpusmill.train.run_folder import RESULT, write_json
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
from tests.conftest import ROOT
from tests.train.log.made import make_run


def command(*arguments: str) -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["dashboard", *arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def test_the_page_of_a_run_by_its_folder(tmp_path: Path) -> None:
    make_run(Folder(tmp_path / "run"), rows=40)
    printed = command(str(tmp_path / "run"))
    assert printed == f"{tmp_path}/run/dashboard.html: 40 rows up to step 1,600\n"
    assert "made" in (tmp_path / "run/dashboard.html").read_text()
    found = json.loads(command(str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--json"))
    assert found["page"] == str(tmp_path / "page.html") and found["rows"] == 40
    assert found["bytes"] == (tmp_path / "page.html").stat().st_size


def test_a_run_in_another_store() -> None:
    run = Folder("memory://bucket/run")
    make_run(run, rows=5)
    assert command(run.url) == "memory://bucket/run/dashboard.html: 5 rows up to step 1,600\n"
    assert b"Step 1,600 of 2,000" in (run / "dashboard.html").read()


def test_no_run_is_a_mistake_of_the_user_s(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a config"):
        command(str(tmp_path))


def test_watching_ends_with_the_run(tmp_path: Path) -> None:
    run, page = Folder(tmp_path / "run"), tmp_path / "run/dashboard.html"
    make_run(run, rows=20)
    process = subprocess.Popen(
        [sys.executable, "-m", "corpusmill", "dashboard", run.url, "--watch", "1"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(page.exists)
        assert '"live":1.0' in page.read_text() and "Step 1,600" in page.read_text()
        first = page.stat().st_ino
        until(lambda: page.stat().st_ino != first)  # another file under its name: nobody sees half a page
        make_run(run, rows=30, done=True)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0 and "30 rows up to step 2,000" in out
    assert '"live":0' in page.read_text() and "Done: 2,000 steps" in page.read_text()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_run_keeps_its_own_page(config: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    settings = config(
        **{"log.dashboard": True, "schedule.steps": 6, "schedule.warmup_steps": 2, "validation.every": 3}
    )
    train(TrainConfig.model_validate(settings))
    page = (tmp_path / "run/dashboard.html").read_text()
    assert "Done: 6 steps, 1,152 tokens." in page and '"live":0' in page
    history = History().read(Folder(tmp_path / "run"))
    assert {"attention_entropy/layer_0", "attention_entropy/layer_1", "logit_max", "activation_rms"} <= set(
        history.names
    )
    assert len(history.column("activation_rms")[0]) == 6
    again = command(str(tmp_path / "run"), "--out", str(tmp_path / "again.html"))
    assert "6 rows up to step 6" in again and (tmp_path / "again.html").read_text() == page


def test_a_live_page_is_written_no_oftener_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Folder(tmp_path)
    config = make_run(run, rows=5)
    clock, pages = [1000.0], list[float]()
    monkeypatch.setattr(live_module.time, "monotonic", lambda: clock[0])

    def slow(*_: Any) -> str:
        pages.append(clock[0])
        clock[0] += 2.0  # seconds that a page takes
        return "page"

    monkeypatch.setattr(live_module, "render", slow)
    live = Live(run, config, [])
    for step in range(1, 2000):
        live.write({"step": step, "loss": 2.0})
        clock[0] += 1.0
    live.close()
    gaps = [after - before for before, after in pairwise(pages)]
    assert gaps[:-1] == [402.0] * 4  # half a percent of 400 s are the 2 s that one takes; then the last page


def test_done_is_what_the_config_asks_for(tmp_path: Path) -> None:
    from corpusmill.train.log.dashboard import finished

    run = Folder(tmp_path)
    config = make_run(run, rows=5)
    assert not finished(run, config)
    write_json(run / RESULT, {"steps": 1000})  # of the run before its steps were raised
    assert not finished(run, config)
    write_json(run / RESULT, {"steps": 2000})
    assert finished(run, config)
