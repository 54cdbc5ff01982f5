"""Fixtures for all tests: the hypothesis profile, an in-process scheduler, a real S3-compatible server."""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bench.object_store import NoServer, serve
from tests.browser import browser  # noqa: F401 (a fixture for all)
from tests.forks import PRELOAD
from tests.web import hub  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
# What a child process needs to import this checkout, and no other that may be installed.
IMPORT_PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
DATA = ROOT.parent / "shared" / "data"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and the processes of tests about Ctrl-C would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:
    # The session's workers keep the cores busy: threads of each process of theirs would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests and those that install a peer first, of them those with the longest time limits: one that began last would run
    alone."""

    def late(item: pytest.Item) -> tuple[bool, float]:
        module = getattr(item, "module", None)
        peers = any(
            getattr(value, "__module__", "") == "bench.peers" for value in vars(module or object).values()
        )
        first = peers or item.get_closest_marker("slow") is not None
        limit = item.get_closest_marker("timeout")
        return not first, -limit.args[0] if first and limit else 0.0

    items.sort(key=late)


def pytest_collection_finish() -> None:
    """Whatever is imported stays: collections of garbage, of which runs of the trainer ask for some, need not look at it."""
    gc.collect()
    gc.freeze()


class Serial:
    """A `Scheduler` in this process: what a test uses when scheduling is not its subject.

    `reverse` runs the tasks in the opposite order; `labels` has the label of every task.
    """

    count = 1

    def __init__(self, reverse: bool = False) -> None:
        self.reverse = reverse
        self.labels: list[str] = []

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        assert sizes is None or len(sizes) == len(items)
        self.labels += [label] * len(items)
        results = {}
        for index in reversed(range(len(items))) if self.reverse else range(len(items)):
            results[index] = function(items[index])
        return [results[index] for index in range(len(items))]

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        result = work()
        return lambda: result

    def close(self, last: Callable[[], Any]) -> list[Any]:
        return []


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one process of the test session makes, under a lock, and all read; not to be written to.

    Two fixtures that take one name would read each other's files, in whichever order they come: that fails here.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers of this session
    folder, done = base / f"shared-{name}", base / f"shared-{name}.done"
    with (base / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.write_text(make.__module__)
        assert done.read_text() == make.__module__, f"{name!r} is also made by {done.read_text()}"
    return folder


@pytest.fixture
def serial() -> Serial:
    return Serial()


@pytest.fixture
def forked_workers() -> Iterator[None]:
    """Dask's workers of this process are forked, by Dask's own option, from one that has imported what they need,
    once for all of them. Where the start of a worker is the subject they are new interpreters, as by default."""
    import dask
    from distributed import utils

    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOAD["commands"]])
    utils._forkserver_preload_set = True  # Dask would have less imported
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data that only tests may read; the test is skipped where it is absent."""
    if not DATA.is_dir():
        pytest.skip("the folder of test data (../shared/data) is not beside this checkout")
    return DATA


@pytest.fixture(scope="session")
def quickstart_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run of the quick start's recipe; not to be written to."""
    from tests.golden.record import make_run

    def make(folder: Path) -> None:
        make_run(folder)

    return shared(tmp_path_factory, "quickstart", make) / "runs/quickstart"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """SeaweedFS on loopback with one bucket; yields the environment that reaches it."""
    try:
        with serve(tmp_path_factory.mktemp("s3")) as environment:
            yield environment
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture
def s3(
    s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A fresh `s3://` prefix, and an environment in which it can be reached."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    import corpusmill.common.stores

    corpusmill.common.stores.open_store.cache_clear()
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    yield f"s3://corpus/{name}-{os.getpid()}"
    corpusmill.common.stores.open_store.cache_clear()
