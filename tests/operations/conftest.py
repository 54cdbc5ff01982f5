"""The small finished run of the end-to-end tests, here too."""

from __future__ import annotations

from tests.e2e.conftest import corpus, finished  # noqa: F401 (fixtures)
