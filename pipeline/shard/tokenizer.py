"""The tokenizer of the stage, as its tasks get it."""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import Bpe, load_bpe


@dataclass(frozen=True)
class Tokenizer:
    """`file`: the copy beside the shards, which tasks read. `source`: where it came from, which is what errors name."""

    file: Folder
    eos_token: str
    source: Folder

    def load(self) -> Bpe:
        """What `load_bpe` makes of it. That keeps what it loaded by bytes and name. The driver asks by the same name, so
        a process that is both loads once, and has one table of pre-tokens."""
        return load_bpe(self.file.read(), self.eos_token, str(self.source))
