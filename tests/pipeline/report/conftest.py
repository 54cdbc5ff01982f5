"""The fixture that makes a run to report on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corpusmill.pipeline.engine.stage import Scheduler
from tests.pipeline.report import made
from tests.pipeline.report.made import Doc, Made

Maker = Callable[..., Made]


@pytest.fixture
def make_run(tmp_path: Path, serial: Scheduler) -> Callable[[Sequence[Sequence[Doc]], Any], Made]:
    """`made.make_run` in a folder of the test's own."""
    return partial(made.make_run, tmp_path, serial)
