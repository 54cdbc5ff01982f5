"""Checkpoints that prove themselves: safetensors and JSON, from any layout into any other, the manifest written last.

    checkpoints/step-000200/model*.safetensors  optimizer*.safetensors  tensors.json  state.json  manifest.json

A folder without a manifest, or with files that are not the manifest's, is never loaded and never counts. Works on any
store. Files hold no pickles. `write` decides who writes which box and `read` which parts of the boxes to read, as
`torch.distributed.checkpoint` does, over the table that the format has. `from corpusmill.train import checkpoint` gives the names below; torch is imported only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.train.checkpoint.pieces import Piece, live, pieces_of
    from corpusmill.train.checkpoint.read import load_newest, load_step, read_tensors, restore, restore_pieces
    from corpusmill.train.checkpoint.store import (
        MODEL,
        OPTIMIZER,
        STATE,
        Checkpoint,
        abandon,
        open_step,
        prune,
        steps,
    )
    from corpusmill.train.checkpoint.write import Saver, save

__all__ = [
    "MODEL", "OPTIMIZER", "STATE", "Checkpoint", "Piece", "Saver", "abandon", "live", "load_newest", "load_step",
    "open_step", "pieces_of", "prune", "read_tensors", "restore", "restore_pieces", "save", "steps",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("store", "pieces", "read", "write", "saver"):
            found = import_module(f"corpusmill.train.checkpoint.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module 'corpusmill.train.checkpoint' has no attribute '{name}'")
