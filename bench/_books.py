"""The books of the example corpus as tokens of a small BPE, for benches that train small models without a shard set."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

BOOKS = Path(__file__).resolve().parent.parent / "examples/corpus/sources/books"


def tokens(vocabulary: int) -> Tensor:
    """All books one after another, int64; the BPE is trained on them."""
    from tokenizers import ByteLevelBPETokenizer

    files = sorted(BOOKS.rglob("*.txt"))
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(file) for file in files], vocab_size=vocabulary, show_progress=False)
    words = "\n\n".join(file.read_text(encoding="utf-8") for file in files)
    return torch.tensor(tokenizer.encode(words).ids)
