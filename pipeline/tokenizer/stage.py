"""`tokenizer`: trained on the train split alone, or taken from a file, then measured."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import UserError, nearest
from corpusmill.common.hugging_face import TRAIN, end_token, read_given
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import SUMMARY, VALIDATION
from corpusmill.pipeline.engine.planning.constants import TOKEN_BYTES, Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work, over_partitions
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.schemas.manifest import Marker, PublishedFile, StageManifest, hash_json
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tokenizer import TokenizerParams

if TYPE_CHECKING:
    from corpusmill.pipeline.tokenizer.sample import Drawn

MIB = 1 << 20
FILE, CONFIG, MAP, STATS = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "stats.json"
MARKER = "scratch/trained.json"
_WORDS = 0.25  # bytes of the files of counted words, by those of the sample's
TRAINING = (  # what a given tokenizer makes idle
    "model", "vocab_size", "vocab_multiple", "pre_tokenizer", "digits", "nfc", "special_tokens", "max_token_bytes", "min_frequency",
    "sample_mb", "weights",
)  # fmt: skip


class Tokenizer(GlobalStage):
    """Publishes `tokenizer.json`, the files with which `transformers` loads it, and `stats.json` (see `measure`)."""

    name = "tokenizer"
    version = "2"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.given: bytes | None = None
        if self.params.weights and self.params.path is None:
            _check_weights(self.params.weights, recipe)

    def existing(self) -> bytes | None:
        """The bytes of the tokenizer that `path` names, read once; None if one is to be trained."""
        if self.params.path is not None and self.given is None:
            self.given = read_given("tokenizer.path", self.params.path, TRAIN)
        return self.given

    def key_params(self) -> dict[str, Any]:
        """With a given tokenizer its content counts, not its place, nor what training would have used; of those to compare
        with, the content too."""
        params = super().key_params()
        existing = self.existing()
        if existing is not None:
            for name in ("path", *TRAINING):
                params.pop(name, None)
            params["tokenizer_xxh3"] = checksum(existing)
        if self.params.compare:
            params["compare_xxh3"] = [
                checksum(read_given("tokenizer.compare", path)) for path in self.params.compare
            ]
        return params

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        measured = json.loads((folder / STATS).read())["sources"].values()
        tokens = sum(source["tokens"] for source in measured)
        per_token = sum(source["bytes"] for source in measured) / max(1, tokens)
        return f"vocabulary of {manifest.counters['vocab_size']:,}, {per_token:.2f} bytes a token"

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Two passes over the partitions, to draw the sample and to measure; a pass over the sample for its words, from which one
        process trains; two passes for what merges come from."""
        params: TokenizerParams = self.params
        own, count, groups = known.of(self.name), flow.partitions, 16 * flow.validation * flow.partitions
        sample = min(flow.text_bytes, params.sample_mb * MIB)
        stored = sample * known.stored
        drawn = over_partitions(
            self.name, "sample", flow, known, gets=count, puts=count, written_bytes=stored
        )
        works = [replace(drawn, units={"mb": flow.megabytes}, read_bytes=drawn.read_bytes + groups)]
        if params.path is None:
            words = _WORDS * stored
            works += [
                Work(
                    "words", count, read_bytes=stored, written_bytes=words, gets=count, puts=count + 1, driver_bytes=drawn.driver_bytes
                ),
                Work(
                    "training", 1, {"sample_mb": sample / 1e6}, read_bytes=words, gets=count, puts=5, one_core=True,
                    driver_bytes=own.driver_held * sample,
                ),
            ]  # fmt: skip
        loaded = TOKEN_BYTES * params.size  # each task loads the tokenizer
        works += [
            over_partitions(
                self.name, "measure", flow, known, gets=2 * count, read_bytes=groups + loaded * count
            ),
            Work(
                "origins",
                2 * count,
                read_bytes=2 * stored + 2 * loaded * count,
                gets=4 * count,
                written_bytes=0.8 * stored,
                driver_bytes=drawn.driver_bytes,
            ),
        ]
        return Forecast(works, flow)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.common.hugging_face import config, special_tokens_map
        from corpusmill.pipeline.bpe.encode import how
        from corpusmill.pipeline.bpe.load import load_bpe
        from corpusmill.pipeline.tokenizer.measure import load_other, measure
        from corpusmill.pipeline.tokenizer.merge_origins import SAMPLE_BYTES
        from corpusmill.pipeline.tokenizer.sample import draw
        from corpusmill.pipeline.tokenizer.train import untrained

        params: TokenizerParams = self.params
        for path in params.compare:  # before the work, not after it
            load_other(read_given("tokenizer.compare", path), f"tokenizer.compare: {path}")
        existing = self.existing()
        eos = params.eos_token
        if existing is None:
            untrained(params)
        else:
            eos = end_token(existing, params.eos_token)
            if eos != params.eos_token:
                context.log(f"tokenizer: documents end with {eos}, the given tokenizer's own")
            load_bpe(existing, eos, f"tokenizer.path: {params.path}")
        splits = json.loads((context.previous["split"] / SUMMARY).read())["sources"]
        inputs = {part.name: part.xxh3 for part in context.partitions}
        validation = checksum((context.previous["split"] / VALIDATION).read())
        key = hash_json([self.version, self.key_params(), inputs, validation])
        if existing is None:
            drawn = draw(context, int(params.sample_mb * MIB), splits, key, params.weights)
        else:  # only to see where its tokens stand
            drawn = draw(context, SAMPLE_BYTES, splits, key)
        data = self._train(context, drawn, key) if existing is None else existing
        file = publish_bytes(context.folder, FILE, data)
        bpe = load_bpe(data, eos, "tokenizer.path: " + str(params.path or FILE))
        context.log(f"tokenizer: {how(bpe)}")
        stats = {**measure(context, bpe, eos, splits, drawn), "trained_on": _account(drawn, splits, existing)}
        if existing is None and bpe.vocab_size < params.vocab_size:
            more = (
                "pieces that occur twice"
                if params.model == "unigram"
                else f"pairs that occur {params.min_frequency} times"
            )
            context.log(
                f"tokenizer: {bpe.vocab_size} tokens, not {params.vocab_size}: the text has no more {more}"
            )
        files = [
            file,
            publish_bytes(context.folder, CONFIG, config(data, eos)),
            publish_bytes(context.folder, MAP, special_tokens_map(data, eos)),
            publish_bytes(
                context.folder, STATS, (json.dumps(stats, indent=1, sort_keys=True) + "\n").encode()
            ),
        ]
        (context.folder / "scratch").delete()
        return files, {
            "vocab_size": bpe.vocab_size, "unused_tokens": stats["unused_tokens"],
            "sample_docs": stats["trained_on"]["docs"], "sample_bytes": stats["trained_on"]["bytes"],
            "merges_from_boilerplate": stats["origins"]["boilerplate"]["merges"],
            "merges_from_tags": stats["origins"]["tags"]["merges"],
        }  # fmt: skip

    def _train(self, context: Context, drawn: Drawn, key: str) -> bytes:
        """The bytes of `tokenizer.json`. What a killed run trained is used."""
        from corpusmill.pipeline.tokenizer.sample_words import sample_words
        from corpusmill.pipeline.tokenizer.train import learned

        def make() -> Marker:
            context.log(f"tokenizer: training on {drawn.bytes / MIB:.1f} MiB of {drawn.docs:,} documents")
            words = sample_words(context, drawn, self.params, key)
            with context.work("tokenizer: training", 0):
                data = learned(words, self.params)
            return Marker(key=key, files=[publish_bytes(context.folder, FILE, data)])

        once(Marker, context.folder / MARKER, key, context.folder, make, read_files=True)
        return (context.folder / FILE).read()


def _check_weights(weights: dict[str, float], recipe: Recipe) -> None:
    """Raises `UserError` if a weight has no source, or none to train on, or a source of train text has no weight."""
    for source, weight in weights.items():
        if source not in recipe.sources:
            raise UserError(
                f"tokenizer.weights: '{source}' is not a source{nearest(source, recipe.sources)}; sources are"
                f" {', '.join(sorted(recipe.sources))}"
            )
        if weight and recipe.split.target(source).only == "validation":
            raise UserError(
                f"tokenizer.weights: '{source}' is for validation only (split.per_source), and not trained on; give it 0"
            )
    for source in sorted(set(recipe.sources) - set(weights)):
        if recipe.split.target(source).only != "validation":
            raise UserError(
                f"tokenizer.weights: no weight for source '{source}'; give one, or 0 to leave it out"
            )


def _account(drawn: Drawn, splits: dict[str, Any], existing: bytes | None) -> dict[str, Any]:
    """What the tokenizer was trained on, by source; nothing where it was given."""
    if existing is not None:
        return {"docs": 0, "bytes": 0, "sources": {}}
    sources = {
        source: {"docs": edge.docs, "bytes": edge.bytes, "of_bytes": splits[source]["train"]["bytes"]}
        for source, edge in sorted(drawn.edges.items())
    }
    return {"docs": drawn.docs, "bytes": drawn.bytes, "sources": sources}


STAGE = Tokenizer
