"""One thread, as all runs of tests have: more only wait for each other at these sizes."""

from __future__ import annotations

import pytest
import torch

from tests.train.precision.products import decoded_products  # noqa: F401 (a fixture for all)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
