"""Shards -> model. `trainer` is the loop; `data` streams, `model` computes, `checkpoint` survives, `evaluate` judges.

Importing `train` or `corpusmill.train.commands.train` loads neither torch nor anything else that is heavy. The package can be
called: `corpusmill.train(config)` is `corpusmill.train.api.train`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        from corpusmill.train.api import train

        return train(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
