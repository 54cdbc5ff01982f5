from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared
from tests.train.evaluate.tasks.runs import make_run


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that `tests.train.evaluate` has under this name; not to be written to."""
    return shared(tmp_path_factory, "reader", make_run)
