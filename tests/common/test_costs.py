"""Every moment of a process is in one phase, whatever nests, fails or runs beside it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.costs import BETWEEN, START, Account, Meter, add_to
from corpusmill.common.storage import Folder

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.recursive(
    st.tuples(st.sampled_from(["enter", "work"]), NAMES),
    lambda inner: st.tuples(
        st.sampled_from(["phase", "stage's phase", "account", "fails"]), NAMES, st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def follow(meter: Meter, step: tuple[object, ...], into: Account) -> None:
    kind, name, *inner = step
    assert isinstance(name, str)
    if kind == "enter":
        meter.enter(name)
    elif kind == "work":
        spend(0.0002)
    elif kind == "account":
        with meter.account(name) as account:
            for one in inner[0]:  # type: ignore[attr-defined]
                follow(meter, one, into)
        add_to(into, account)
    else:
        with suppress(KeyError), meter.phase(name, "x" if kind == "stage's phase" else None):
            for one in inner[0]:  # type: ignore[attr-defined]
                follow(meter, one, into)
            if kind == "fails":
                raise KeyError


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=6))
def test_it_adds_up(steps: list[tuple[object, ...]]) -> None:
    meter = Meter()
    meter.restart()
    cpu, wall = meter._cpu, meter._wall
    accounts: Account = {}
    for step in steps:
        follow(meter, step, accounts)
    add_to(accounts, meter.whole())
    assert sum(one.cpu for one in accounts.values()) == pytest.approx(meter._cpu - cpu, abs=1e-9)
    assert sum(one.busy for one in accounts.values()) == pytest.approx(meter._wall - wall, abs=1e-6)
    assert min(one.cpu for one in accounts.values()) >= 0


def test_what_came_before_is_the_start() -> None:
    before = time.process_time()
    meter = Meter()
    own = meter.whole()
    assert list(own) == [("", START)] and own["", START].cpu >= before
    assert (
        own["", START].busy >= own["", START].cpu / 64
    )  # wall time since the process began, of all its cores
    meter.restart()
    assert sum(one.cpu for one in meter.whole().values()) < 0.05


def test_the_innermost_phase_counts_and_the_one_around_it_continues_after_it(tmp_path: Path) -> None:
    meter = Meter()
    with meter.account("filter", "tasks") as account:
        with meter.phase("publishing"):
            (Folder(tmp_path) / "a").write(b"123")
            meter.enter("dedup")
            with meter.phase("compiling"):
                spend(0.02)
            (Folder(tmp_path) / "b").write(b"12345")
        (Folder(tmp_path) / "c").write(b"1")
    assert {key: one.traffic.written for key, one in account.items()} == {
        ("filter", "tasks"): 0, ("filter", "publishing"): 3, ("dedup", "compiling"): 0, ("dedup", "publishing"): 5,
        ("dedup", "tasks"): 1,
    }  # fmt: skip
    assert account["dedup", "compiling"].cpu >= 0.02


def test_another_thread_changes_no_phase() -> None:
    meter = Meter()
    with meter.account("filter", "tasks") as account:

        def beside() -> None:
            with meter.phase("of another thread"):
                spend(0.02)

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    assert list(account) == [("filter", "tasks")] and account["filter", "tasks"].cpu >= 0.02


def test_a_worker_waits_behind_its_first_task() -> None:
    meter = Meter()
    with meter.account("filter", "tasks"):
        meter.wait()  # within a task: nothing
    meter.wait()
    time.sleep(0.05)
    own = meter.whole()
    assert list(own) == [("", START), ("", BETWEEN)] and own["", BETWEEN].busy >= 0.05
