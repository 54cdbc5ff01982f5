"""The harness itself: a fork that fails, dies or hangs shows, with what it printed; slow tests come first."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.forks import launch

HERE = "tests.test_forks"


def leave(rank: str, how: str) -> None:
    """One process leaves in some way; the other one waits for ever."""
    print(f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
    if os.environ["RANK"] != rank:
        time.sleep(600)
    if how == "raises":
        raise ValueError("from a rank")
    if how == "exits":
        os._exit(7)
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(f"code {how}")


@pytest.mark.parametrize(
    ("how", "code"), [("raises", 1), ("exits", 7), ("is killed", -signal.SIGKILL), ("3", 1)]
)
def test_one_that_fails_ends_all(how: str, code: int) -> None:
    done = launch(2, f"{HERE}:leave", 1, how)
    assert done.codes == [-signal.SIGKILL, code] and done.returncode == code
    assert done.outputs == [f"process {rank} of 2\n" for rank in range(2)]
    assert ("ValueError: from a rank" in done.errors[1]) == (how == "raises")
    assert f"(rank 1 exit code {code})" in done.stderr


def test_one_that_hangs_shows_where() -> None:
    done = launch(2, f"{HERE}:leave", 2, "", timeout=10)  # they import this file
    assert done.returncode == -signal.SIGABRT and "ranks [0, 1] did not end in 10 s" in done.stderr
    assert all("in leave" in error for error in done.errors)


def echo(*arguments: str) -> None:
    print(*arguments, os.environ.get("GIVEN"), os.environ.get("RANK"))


def test_one_process_has_its_own_arguments_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    done = launch(1, f"{HERE}:echo", "a", 2, env={"GIVEN": "here"})
    assert (done.stdout, done.returncode) == ("a 2 here None\n", 0)
    assert launch(1, f"{HERE}:echo").stdout == "None None\n"


def test_slow_tests_come_first_and_of_them_the_slowest(request: pytest.FixtureRequest) -> None:
    def item(name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
        made = pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)
        for mark in marks:
            made.add_marker(mark)
        return made

    slow, limit = pytest.mark.slow, pytest.mark.timeout
    items = [item("a"), item("b", limit(900)), item("c", slow), item("d", slow, limit(900)),
             item("e", slow, limit(1800)), item("f")]  # fmt: skip
    pytest_collection_modifyitems(items)
    assert [one.name for one in items] == ["e", "d", "c", "a", "b", "f"]
