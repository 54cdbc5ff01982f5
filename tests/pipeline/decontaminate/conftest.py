"""An evaluation set of a long, a short and a tiny question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.decontaminate.helpers import ANSWER, QUESTION, SHORT, write_set


@pytest.fixture
def riddles(tmp_path: Path) -> Path:
    return write_set(
        tmp_path / "evals",
        [
            {"question": QUESTION, "answer": "289", "id": "long"},
            {"question": SHORT, "answer": ANSWER, "id": "short"},
            {"question": "Why so short?", "answer": "No reason", "id": "tiny"},
        ],
    )
