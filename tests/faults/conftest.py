"""Fixtures of the tests that break deduplication."""

from __future__ import annotations

from tests.faults.dedup import crawls, main  # noqa: F401 (fixtures for all)
