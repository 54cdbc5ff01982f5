"""One owner an output: two runs at once, owners that were killed, that were stopped and came back, and those of other machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from corpusmill.__main__ import main
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import owner as module
from corpusmill.pipeline.engine.owner import OWNER, Claim, owner_of
from tests.conftest import IMPORT_PATH
from tests.e2e.cli import corpusmill, difference, published, write_recipe
from tests.e2e.killing import killed_without_workers
from tests.forks import launch

RUNS = 4  # that start at the same moment

HOLD = """
import sys, time
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import owner
owner.RENEWAL = float(sys.argv[2])
with owner.Claim(Folder(sys.argv[1]), print) as claim:
    print("mine", flush=True)
    for line in sys.stdin:
        try:
            claim.check()
            print("still mine", flush=True)
        except Exception as error:
            print(error, flush=True)
"""


@pytest.fixture
def holder() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that hold a claim."""
    started: list[subprocess.Popen[str]] = []

    def start(place: str, renewal: float = 15.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, place, str(renewal)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        )  # fmt: skip
        started.append(process)
        assert process.stdout and process.stdout.readline() == "mine\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def places(tmp_path: Path, s3: str) -> list[str]:
    return [str(tmp_path / "out"), s3]


@pytest.mark.s3
def test_a_second_owner_is_refused_until_the_first_ends(
    holder: Callable[..., subprocess.Popen[str]], tmp_path: Path, s3: str
) -> None:
    for place in places(tmp_path, s3):
        first = holder(place)
        with pytest.raises(
            UserError, match=rf"in use by process {first.pid} on .*, for .*, last sign .* ago; stop that"
        ):
            Claim(Folder(place)).__enter__()
        with pytest.raises(UserError, match="it writes all of"):
            Claim(Folder(place) / "a/b").__enter__()
        assert owner_of(Folder(place)) is not None
        first.communicate("", timeout=20)
        with Claim(Folder(place)) as claim:
            claim.check()
        assert not (Folder(place) / OWNER).exists() and owner_of(Folder(place)) is None


@pytest.mark.s3
def test_a_killed_owner_is_taken_over_at_once(
    holder: Callable[..., subprocess.Popen[str]], tmp_path: Path, s3: str
) -> None:
    for place in places(tmp_path, s3):
        first = holder(place)
        first.kill()
        first.wait()
        lines: list[str] = []
        with Claim(Folder(place), lines.append) as claim:
            claim.check()
        assert any(f"taken over from process {first.pid}" in line for line in lines)


@pytest.mark.s3
def test_of_many_takers_one_owns_it(
    holder: Callable[..., subprocess.Popen[str]], tmp_path: Path, s3: str
) -> None:
    for place in places(tmp_path, s3):
        first = holder(place)
        first.kill()
        first.wait()
        won, refused = taken_by_many(place)
        assert (len(won), refused) == (1, 7)
        won[0].__exit__(None, None, None)


def taken_by_many(place: str) -> tuple[list[Claim], int]:
    """Eight threads claim a folder at once: those that own it, and how many were refused."""
    won: list[Claim] = []
    refused: list[UserError] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        try:
            won.append(Claim(Folder(place)).__enter__())
        except UserError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, len(refused)


def of_another_machine(file: Folder, renewed: float) -> None:
    """As if a process of another machine had claimed the folder."""
    owner = json.loads(file.read())
    file.write(json.dumps({**owner, "machine": "another", "host": "node7", "renewed": renewed}).encode())


def test_an_owner_of_another_machine(
    holder: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as gone when its claim is old and it does not renew it while we watch, whatever its clock says."""
    monkeypatch.setattr(module, "RENEWAL", 0.3)
    place = Folder(tmp_path / "out")
    file = place / OWNER
    holder(str(place))
    of_another_machine(file, time.time())
    with pytest.raises(
        UserError,
        match=r"on node7 .*; wait, or give another output; if that process is gone, its claim ends 90 s",
    ):
        Claim(place).__enter__()
    of_another_machine(file, time.time() - 1000)
    over = threading.Event()

    def renew() -> None:  # its clock is wrong, but it lives
        while not over.wait(0.1):
            of_another_machine(file, time.time() - 1000)

    alive = threading.Thread(target=renew)
    alive.start()
    try:
        with pytest.raises(UserError, match="on node7"):
            Claim(place).__enter__()
    finally:
        over.set()
        alive.join()
    lines: list[str] = []
    with Claim(place, lines.append) as claim:
        claim.check()
    assert "has not renewed its claim" in lines[0] and "taken over from" in lines[1]


def test_an_owner_that_was_stopped_notices_that_it_was_replaced(
    holder: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    place = Folder(tmp_path / "out")
    first = holder(str(place), renewal=0.2)
    first.send_signal(signal.SIGSTOP)
    of_another_machine(place / OWNER, 0)  # as another machine sees it
    place.delete([OWNER])
    with Claim(place):
        first.send_signal(signal.SIGCONT)
        assert first.stdout and "taken over by process" in first.stdout.readline()
        answer, _ = first.communicate("?\n", timeout=20)
        assert "taken over by process" in answer and "this run stops" in answer
        assert owner_of(place) is not None  # it did not delete our claim


def test_what_is_no_claim_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / OWNER).write_text("my notes")
    with pytest.raises(UserError, match="not a claim of this program"):
        Claim(Folder(tmp_path)).__enter__()
    assert (tmp_path / OWNER).read_text() == "my notes"


def test_a_finished_run_needs_no_claim(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written where nothing is to do, and where nothing can be written the reason is printed."""

    def full(*_: object) -> bool:
        raise WorkError("No space left on device")

    monkeypatch.setattr(Folder, "write_new", full)
    with Claim(Folder(tmp_path / "out")) as claim, pytest.raises(WorkError, match="No space left"):
        claim.check()


def test_two_runs_at_once(corpus: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "small.yaml", corpus, tmp_path / "run")
    command = [sys.executable, "-m", "corpusmill", "run", str(recipe), "--workers", "1"]
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    first = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, start_new_session=True
    )
    try:
        while not (tmp_path / "run" / OWNER).exists():
            assert first.poll() is None
            time.sleep(0.02)
        second = corpusmill("run", recipe, "--workers", "0", check=False)
        assert second.returncode == 2 and f"in use by process {first.pid}" in second.stderr
        assert second.stderr.count("\n") == 1 and psutil.pid_exists(first.pid)
        ingest = corpusmill("ingest", corpus / "books", tmp_path / "run/more", "--workers", "0", check=False)
        assert ingest.returncode == 2 and "it writes all of" in ingest.stderr
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    after = corpusmill("run", recipe, "--workers", "0", "--set", "stages=[ingest]")
    assert f"taken over from process {first.pid}" in after.stderr
    assert not (tmp_path / "run" / OWNER).exists()


def test_another_recipe_needs_replace(corpus: Path, tmp_path: Path) -> None:
    source, out = corpus / "planted", tmp_path / "out"
    corpusmill("ingest", source, out, "--workers", "0")
    before = (out / "run.json").read_bytes()
    same = corpusmill("ingest", source, out, "--workers", "0", "--set", "cluster.retries=5")
    assert "nothing to do" in same.stderr
    changed = ("ingest", source, out, "--workers", "0", "--min-chars", "5")
    refused = corpusmill(*changed, check=False)
    assert refused.returncode == 2 and (out / "run.json").read_bytes() == before
    assert "finished, by another recipe: ingest.min_chars: 1 -> 5. Give --replace" in refused.stderr
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: r\noutput: {tmp_path}/run\nstages: [ingest]\nsources: {{planted: {{paths: [{source}]}}}}\n"
    )
    corpusmill("run", recipe, "--workers", "0")
    dry = corpusmill("run", recipe, "--workers", "0", "--set", "ingest.min_chars=5", "--dry-run")
    assert "warning" in dry.stderr and "Give --replace" in dry.stderr and "min_chars" in dry.stdout
    corpusmill(*changed, "--replace")
    assert (out / "run.json").read_bytes() != before


def test_output_and_input_are_apart(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a.jsonl").write_text('{"text": "some text of a document"}\n')
    place = tmp_path / "in"
    for source, out in [
        (place, place / "out"),
        (place, place),
        (f"{place}/**/*.jsonl", place / "x/out"),
        (f"{place}/*", place / "out"),
    ]:
        refused = corpusmill("ingest", source, out, "--workers", "0", check=False)
        assert refused.returncode == 2 and "lies within it, and would be read as input" in refused.stderr, (
            source,
            out,
        )
    for source, out in [(place / "a.jsonl", place), (place, tmp_path), (f"{place}/*.jsonl", place)]:
        refused = corpusmill("ingest", source, out, "--workers", "0", check=False)
        assert refused.returncode == 2 and "lies within" in refused.stderr, (source, out)
    (tmp_path / "link").symlink_to(place)
    refused = corpusmill("ingest", place, tmp_path / "link/out", "--workers", "0", check=False)
    assert refused.returncode == 2 and "would be read as input" in refused.stderr
    assert sorted(path.name for path in place.rglob("*")) == ["a.jsonl", "sub"]
    corpusmill("ingest", f"{place}/*.jsonl", place / "out", "--workers", "0")


def claims_at_once(folder: str, number: str, *arguments: str) -> None:
    """`corpusmill ARGUMENTS` in this process, begun when all of `RUNS` are there; the one that owns the output goes on when all
    others have ended."""

    def wait_for(pattern: str, count: int) -> None:
        while len(list(Path(folder).glob(pattern))) < count:
            time.sleep(0.001)

    enter = Claim.__enter__

    def entered(claim: Claim) -> Claim:
        enter(claim)
        wait_for("ended-*", RUNS - 1)
        return claim

    Claim.__enter__ = entered  # type: ignore[method-assign]
    sys.argv = ["corpusmill", *arguments]
    Path(folder, f"ready-{number}").touch()
    wait_for("ready-*", RUNS)
    try:
        main()
    finally:
        Path(folder, f"ended-{number}").touch()


def test_runs_that_start_at_the_same_moment(corpus: Path, tmp_path: Path) -> None:
    """One works, and each other is refused with one line."""
    command = ("ingest", corpus / "planted", tmp_path / "out", "--workers", "0")
    with ThreadPoolExecutor(RUNS) as threads:
        runs = [
            threads.submit(
                launch, 1, f"{__name__}:claims_at_once", tmp_path, number, *command, preload="commands"
            )
            for number in range(RUNS)
        ]
    ended = sorted((run.result() for run in runs), key=lambda run: run.returncode)
    assert [run.returncode for run in ended] == [0] + [2] * (RUNS - 1)
    for run in ended[1:]:
        assert run.stderr.startswith(f"error: {tmp_path}/out: in use by process ")
        assert run.stderr.count("\n") == 1
    corpusmill(*command[:2], tmp_path / "alone", *command[3:])
    assert not difference(published(tmp_path / "out"), published(tmp_path / "alone"))


def test_a_killed_run_goes_on_at_once(corpus: Path, tmp_path: Path) -> None:
    """Nobody waits until the claim of a process of this machine that was killed is stale."""
    command = ("ingest", corpus, tmp_path / "out", "--workers", "0")
    assert killed_without_workers(tmp_path / "out", "parts/*.json", *command)
    assert (tmp_path / "out" / OWNER).exists()
    after = corpusmill(*command)
    assert "taken over from process" in after.stderr and "which is gone" in after.stderr
    assert not (tmp_path / "out" / OWNER).exists()


def test_an_owner_elsewhere_may_end_while_we_wait_for_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for gone, was only slow, and is done before the wait is over: the folder is free."""
    claim = Claim(Folder(tmp_path))
    late = claim.owner.model_copy(update={"machine": "another", "renewed": time.time() - 1000})
    (tmp_path / OWNER).write_bytes(late.to_json())
    clock = SimpleNamespace(time=time.time, sleep=lambda seconds: (tmp_path / OWNER).unlink())
    monkeypatch.setattr("corpusmill.pipeline.engine.owner.time", clock)
    with claim:
        claim.check()
        assert (tmp_path / OWNER).exists()
