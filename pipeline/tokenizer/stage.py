"""`tokenizer`: trained on the train split alone, or taken from a file, then measured."""

from __future__ import annotations

import json
from typing import Any

from pipeline.publish import publish_bytes
from pipeline.splits import SUMMARY, VALIDATION
from pipeline.stage import Context, GlobalStage
from schemas.errors import UserError
from schemas.ids import checksum
from schemas.manifest import PublishedFile, hash_json
from schemas.recipe import Recipe
from schemas.storage import Folder
from schemas.tokenizer import TokenizerParams

MIB = 1 << 20
FILE, CONFIG, STATS = "tokenizer.json", "tokenizer_config.json", "stats.json"
MARKER = "scratch/trained.json"


class Tokenizer(GlobalStage):
    """Publishes `tokenizer.json`, `tokenizer_config.json` and `stats.json` (see `measure`)."""

    name = "tokenizer"
    version = "1"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: TokenizerParams = self.params
        if not params.eos_token:
            raise UserError("tokenizer.eos_token: must not be empty")
        self.given: bytes | None = None

    def existing(self) -> bytes | None:
        """The bytes of the tokenizer that `path` names, read once; None if one is to be trained."""
        if self.params.path is not None and self.given is None:
            try:
                self.given = Folder(self.params.path).read()
            except FileNotFoundError:
                raise UserError(
                    f"tokenizer.path: {self.params.path}: no such file; give a tokenizer.json, or none"
                ) from None
        return self.given

    def key_params(self) -> dict[str, Any]:
        """With a given tokenizer its content counts, not its place, nor what training would have used."""
        params = super().key_params()
        existing = self.existing()
        if existing is not None:
            for name in ("path", "vocab_size", "sample_mb", "min_frequency"):
                params.pop(name)
            params["tokenizer_xxh3"] = checksum(existing)
        return params

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from pipeline.bpe.load import load_bpe
        from pipeline.tokenizer.measure import measure
        from pipeline.tokenizer.train import config

        split = context.previous["split"]
        splits = json.loads((split / SUMMARY).read())["sources"]
        data, sample = self._tokenizer(context, splits)
        file = publish_bytes(context.folder, FILE, data)
        bpe = load_bpe(data, self.params.eos_token, "tokenizer.path: " + str(self.params.path or FILE))
        stats = {**measure(context, bpe, self.params.eos_token, splits), "trained_on": sample}
        files = [
            file,
            publish_bytes(context.folder, CONFIG, config(self.params.eos_token, bpe.eos_id)),
            publish_bytes(
                context.folder, STATS, (json.dumps(stats, indent=1, sort_keys=True) + "\n").encode()
            ),
        ]
        (context.folder / "scratch").delete()
        return files, {
            "vocab_size": bpe.vocab_size, "unused_tokens": stats["unused_tokens"],
            "sample_docs": sample["docs"], "sample_bytes": sample["bytes"],
        }  # fmt: skip

    def _tokenizer(self, context: Context, splits: dict[str, Any]) -> tuple[bytes, dict[str, int]]:
        """The bytes of `tokenizer.json`, and what it was trained on. What a killed run trained is used."""
        from pipeline.tokenizer.sample import train_sample
        from pipeline.tokenizer.train import train

        existing = self.existing()
        if existing is not None:
            return existing, {"docs": 0, "bytes": 0}
        inputs = {part.name: part.xxh3 for part in context.partitions}
        validation = checksum((context.previous["split"] / VALIDATION).read())
        key = hash_json([self.version, self.key_params(), inputs, validation])
        try:
            marker = json.loads((context.folder / MARKER).read())
            data = (context.folder / FILE).read()
            if marker["key"] == key and marker["xxh3"] == checksum(data):
                return data, marker["sample"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        train_bytes = sum(numbers["train"]["bytes"] for numbers in splits.values())
        train_docs = sum(numbers["train"]["docs"] for numbers in splits.values())
        texts = train_sample(context, int(self.params.sample_mb * MIB), train_bytes, train_docs)["text"]
        data = train(texts, self.params)
        import pyarrow.compute as pc

        sample = {"docs": len(texts), "bytes": int(pc.sum(pc.binary_length(texts)).as_py())}
        publish_bytes(context.folder, FILE, data)
        marker = {"key": key, "xxh3": checksum(data), "sample": sample}
        publish_bytes(context.folder, MARKER, json.dumps(marker).encode())
        return data, sample


STAGE = Tokenizer
