"""What the scripts share. They run in a foreign environment; torch, where one needs it, is the product's."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np


def borrow_torch() -> None:
    """The last argument is the product's own packages: they come after those of the environment."""
    sys.path.append(sys.argv[-1])


def digest(numbers: Any) -> str:
    """Of tokens, whatever holds them."""
    return hashlib.sha256(np.asarray(numbers, dtype="<u4").tobytes()).hexdigest()


def content_of(sample: Any) -> list[Any]:
    """A sample of a token shard or of a text shard: its key, and what it holds."""
    if "txt" in sample:
        return [sample["__key__"], sample["txt"], sample["json"]]
    ids = sample["json"]["doc_ids"]
    return [
        sample["__key__"],
        digest(sample["tokens.npy"]),
        np.asarray(sample["docs.npy"]).tolist(),
        list(ids),
    ]


def say(answer: Any) -> None:
    """The last line of the output."""
    print(json.dumps(answer))
