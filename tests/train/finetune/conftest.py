"""A base model in the Hugging Face layout, and the config of a run that trains an adapter on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from tests.train.conftest import VOCAB
from tests.train.models import model_of
from tests.train.tools.test_hugging_face import written

ADAPTER = {"rank": 4, "alpha": 8.0}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The model of the `config` fixture, with weights of its own; not to be written to."""
    settings = {"layers": 2, "kv_heads": 2, "ffn_dim": 64}
    return written(model_of(settings, VOCAB), tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def tuned(config: Callable[..., dict[str, Any]], base: Folder) -> Callable[..., dict[str, Any]]:
    """As `config`, with an adapter on `base`."""

    def make(**settings: Any) -> dict[str, Any]:
        given = {"init_from": base.url, "adapter": ADAPTER, "schedule.steps": 8, "optimizer.lr": 1e-2}
        return config(**{**given, "schedule.warmup_steps": 2, **settings})

    return make


@pytest.fixture
def tuned_file(tuned: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., Path]:
    """The same as a file (JSON is YAML)."""
    import json

    def make(**settings: Any) -> Path:
        path = tmp_path / "tuned.yaml"
        path.write_text(json.dumps(tuned(**settings)), encoding="utf-8")
        return path

    return make
