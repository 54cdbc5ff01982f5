"""Where a rollback goes back to, and what becomes of the checkpoints that it gives up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.guard import GuardConfig
from corpusmill.schemas.manifest import MANIFEST
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.checkpoint import STATE
from corpusmill.train.data.inspect import describe_batch
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import open_shards
from corpusmill.train.guard.guard import branch, delete_abandoned, documents, target
from corpusmill.train.guard.journal import of_run
from corpusmill.train.guard.judge import History
from tests.train.guard.test_journal import journal, rollback, skip

CONFIG = GuardConfig()
GOOD = History(values=tuple((step, 3.0, 1.0, None) for step in range(1, 9)))
UNHEALTHY = History(skips=(8,))


def publish(run: Folder, step: int, known: int, history: History = GOOD) -> None:
    folder = run / f"checkpoints/step-{step:06d}"
    state = {"guard": {"journal": known, "history": history.as_json()}}
    for name, data in (("model.safetensors", b"..."), (STATE, orjson.dumps(state)), (MANIFEST, b"{}")):
        (folder / name).write(data)


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "run")


def test_back_to_the_newest_healthy_one_before_the_trouble(run: Folder) -> None:
    for step, history in ((10, GOOD), (20, GOOD), (30, UNHEALTHY), (40, GOOD)):
        publish(run, step, 0, history)
    assert target(run, [], 36, CONFIG) == (20, True)
    assert target(run, [], 41, CONFIG) == (40, True)
    assert target(run, [], 40, CONFIG) == (20, True)  # a checkpoint of the suspicious step itself is none
    assert target(run, [], 11, CONFIG) == (10, True)
    assert target(run, [], 10, CONFIG) == (10, False)  # the oldest, for want of another
    (run / f"checkpoints/step-000010/{MANIFEST}").parent.delete([MANIFEST])
    (run / "checkpoints/step-000020").delete([STATE])
    assert target(run, [], 36, CONFIG) == (30, False)  # none is healthy
    assert target(run / "nowhere", [], 36, CONFIG) == (-1, False)


def test_one_that_was_no_help_twice_gives_way_to_an_older_one(run: Folder) -> None:
    for step, history in ((10, GOOD), (15, UNHEALTHY), (20, GOOD)):
        publish(run, step, 0, history)
    once, twice = journal(rollback(33, 20)), journal(rollback(33, 20), rollback(34, 20))
    assert target(run, once.entries, 33, CONFIG) == (20, True)
    assert target(run, twice.entries, 33, CONFIG) == (10, True)
    publish(run, 30, 2)  # of the branch after them
    assert target(run, twice.entries, 33, CONFIG) == (30, True)
    assert target(run, twice.entries, 20, CONFIG) == (10, True)
    older = journal(rollback(33, 20), rollback(34, 20), rollback(35, 10), rollback(36, 10))
    assert target(run, older.entries, 33, CONFIG) == (10, True)  # all were tried: the rate is lower still


def test_one_that_was_saved_without_a_guard_may_be_gone_back_to(run: Folder) -> None:
    publish(run, 10, 0)
    (run / f"checkpoints/step-000010/{STATE}").write(b"{}")
    assert target(run, [], 20, CONFIG) == (10, True)


def test_what_was_given_up_is_deleted_and_nothing_else(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = journal(skip(15), rollback(33, 10)).entries
    for step, known in ((10, 0), (20, 1), (30, 1), (25, 2)):
        publish(run, step, known)
    assert branch(run, entries)[1] == [20, 30]
    assert target(run, entries, 99, CONFIG) == (25, True)
    delete, left = Folder.delete, 3

    def dying(self: Folder, paths: Any = None) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        delete(self, paths)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", dying)
        with pytest.raises(KeyboardInterrupt):
            delete_abandoned(run, entries)
    there = {entry.path.split("/")[1] for entry in run.list()}
    assert there == {"step-000010", "step-000020", "step-000025"}  # the newest goes first
    delete_abandoned(run, entries)
    assert {entry.path.split("/")[1] for entry in run.list()} == {"step-000010", "step-000025"}


def test_documents_are_of_the_batch_by_the_run_s_own_plan(
    config: Callable[..., dict[str, Any]], shards: Folder, tmp_path: Path
) -> None:
    made = TrainConfig.model_validate(config())
    opened = open_shards(shards.url)
    plan = make_plan(made.data.model_copy(update={"skip": {4: 2}}), opened, made.seed)
    found = documents(opened, plan, FetchConfig(), 5, 24)
    assert list(found) == ["wiki", "books", "code"] and 8 <= sum(map(len, found.values())) <= 24
    assert sum(map(len, documents(opened, plan, FetchConfig(), 5, 3).values())) <= 3
    assert documents(opened, plan, FetchConfig(), 5, 0) == {}
    # `corpusmill batch` shows the same batch, once the journal has the rollback.
    entry = journal(rollback(5, 3, first=4, batches=2)).entries[0]
    (Folder(made.output_url) / "journal.jsonl").write(orjson.dumps(entry.dumped()) + b"\n")
    shown = describe_batch(of_run(made), 5)
    assert shown["plan"] == plan.sha256
    ids = {doc["doc_id"] for row in shown["sequences"] for doc in row["documents"]}
    assert {doc for docs in found.values() for doc in docs} <= ids
    # Data that cannot be read now does not stop the run.
    (tmp_path / "gone").mkdir()
    broken = open_shards(shards.url)
    broken.train["wiki"].folder.path = str(tmp_path / "gone").strip("/")
    assert documents(broken, plan, FetchConfig(deadline_s=0.5, attempts=1, attempt_s=0.1), 5, 24) == {}
