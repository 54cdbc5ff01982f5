from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared
from tests.train.evaluate.tasks.runs import make_run


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config.yaml and a finished run that reads any text; not to be written to."""
    return shared(tmp_path_factory, "reader", make_run)
