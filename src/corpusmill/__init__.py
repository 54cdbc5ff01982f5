"""CorpusMill: raw text in, a trained language model out, and an account of every step between.

    import corpusmill

    result = corpusmill.filter(table, rules=["c4"])
    run = corpusmill.Recipe.load("recipe.yaml").run()

Everything named in `__all__` is the public API and stays; what else can be imported may change. Nothing heavy is imported
before a name is used. The folders `pipeline`, `train`, `schemas`, `common` and `configs` stand at the top of the repository
and are linked here, so that everything is imported as `corpusmill.…` and nothing else is put on the import path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.common.errors import UserError, WorkError
    from corpusmill.pipeline.api.runs import Recipe, find, trace, verify, why
    from corpusmill.pipeline.api.shards import open_shards, register_stores
    from corpusmill.pipeline.api.stages import (
        decontaminate,
        dedup,
        encode,
        filter,
        ingest,
        redact,
        shard,
        signals,
        signatures,
        split,
        train_tokenizer,
    )
    from corpusmill.pipeline.api.tokenizer import Tokenizer, load_tokenizer
    from corpusmill.pipeline.engine.custom import stage
    from corpusmill.pipeline.engine.stage import Outcome, decisions
    from corpusmill.pipeline.filter.signals.registry import signal
    from corpusmill.train.api import evaluate, generate, train
    from corpusmill.train.data.stream import StreamingTokens

__all__ = [
    "Outcome",
    "Recipe",
    "StreamingTokens",
    "Tokenizer",
    "UserError",
    "WorkError",
    "decisions",
    "decontaminate",
    "dedup",
    "encode",
    "evaluate",
    "filter",
    "find",
    "generate",
    "ingest",
    "load_tokenizer",
    "open_shards",
    "redact",
    "register_stores",
    "shard",
    "signal",
    "signals",
    "signatures",
    "split",
    "stage",
    "trace",
    "train",
    "train_tokenizer",
    "verify",
    "why",
]

_HOME = {
    "common.errors": ["UserError", "WorkError"],
    "pipeline.api.runs": ["Recipe", "find", "trace", "verify", "why"],
    "pipeline.api.shards": ["open_shards", "register_stores"],
    "pipeline.api.stages": [
        "decontaminate", "dedup", "encode", "filter", "ingest", "redact", "shard", "signals", "signatures",
        "split", "train_tokenizer",
    ],
    "pipeline.api.tokenizer": ["Tokenizer", "load_tokenizer"],
    "pipeline.engine.custom": ["stage"],
    "pipeline.engine.stage": ["Outcome", "decisions"],
    "pipeline.filter.signals.registry": ["signal"],
    "train.api": ["evaluate", "generate"],
    "train.data.stream": ["StreamingTokens"],
}  # fmt: skip
_MODULES = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "train":  # the package, which can be called
        return import_module("corpusmill.train")
    if name not in _MODULES:
        raise AttributeError(f"module 'corpusmill' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"corpusmill.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
