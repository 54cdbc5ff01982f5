"""When a step is given up, by what the scheduler answers; with real processes: `tests/operations/test_cluster.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from corpusmill.pipeline.engine.observer import Step
from corpusmill.pipeline.engine.watch import Watch

ADDRESS = "tcp://10.0.0.1:8786"


class Client:
    """A connection to a scheduler without workers."""

    cluster = None
    scheduler = SimpleNamespace(address=ADDRESS, identity=None, processing=None)

    def subscribe_topic(self, name: str, handler: Any) -> None:
        pass

    def sync(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"id": "scheduler", "workers": {}}


def test_without_workers_a_step_is_given_up_with_the_command_that_starts_some() -> None:
    watch = Watch(cast("Any", Client()), "/shared/scheduler.json", 600.0, print)
    watch.step = step = Step("filter", ["part0"])
    watch._check_alone(1.0, {})
    watch._check_alone(600.0, {})
    assert step.gave_up is None
    watch._check_alone(602.0, {})
    assert step.inbox.get(timeout=1) is None  # the run waits for it
    assert f"start some with `dask worker {ADDRESS}`" in str(step.gave_up)  # and not `dask worker FILE`


def test_what_happened_before_the_end_is_logged() -> None:
    lines: list[str] = []
    with Watch(cast("Any", Client()), ADDRESS, 600.0, lines.append) as watch:
        watch._event((0.0, {"action": "add-worker", "worker": "tcp://10.0.0.2:1"}))
    assert [line for line in lines if "tcp://10.0.0.2:1" in line]
