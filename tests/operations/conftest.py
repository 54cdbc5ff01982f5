"""The small finished run of the end-to-end tests, here too, and its publications."""

from __future__ import annotations

from tests.e2e.conftest import corpus, finished  # noqa: F401 (fixtures)
from tests.operations.publications import json_lines, published  # noqa: F401 (fixtures)
