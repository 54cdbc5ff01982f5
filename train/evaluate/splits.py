"""`corpusmill evaluate`: the whole validation split of each source, every token scored once, beside n-gram models, which a
model must clearly beat. And during a run, the losses on a fixed sample of the validation split."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.rewriting import Vocabulary
from corpusmill.train.data.shards import Shards, Source
from corpusmill.train.evaluate.baselines import NGRAM_TOKENS, Baselines
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.documents import document_losses, keep
from corpusmill.train.evaluate.masked import scorer_of
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.statistics import estimate, linearised, mean_of
from corpusmill.train.log.sinks import log_line
from corpusmill.train.model.adapters import merge, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import write_json

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.train.data.build import Rewrite
    from corpusmill.train.parallel.mesh import World

    Floats = npt.NDArray[np.float64]

EVALUATION = "evaluation.json"


def validation_losses(
    model: ParallelModel,
    config: TrainConfig,
    sources: dict[str, Source],
    world: World,
    rewrite: Rewrite | None = None,
) -> dict[str, float]:
    """Mean loss (nats a label) of each source's fixed sample, whose rows the data ranks share; `rewrite`: of rows as this changes
    them, by their numbers in the sample."""
    losses, scorer = {}, Scorer(model, config, world)
    for name, source in sources.items():
        if source.index.ntokens:
            batches = sample(
                source, config.data.sequence_length, config.validation.tokens, world.data_rank, world.data_size,
                config.data.micro_batch, rewrite,
            )  # fmt: skip
            loss, tokens = world.sum(*scorer.total(batches))
            losses[name] = loss / tokens if tokens else float("nan")
    return losses


def newest_checkpoint(run: Folder) -> checkpoint.Checkpoint:
    """The newest valid checkpoint of a run; logs newer ones that are damaged. Raises `UserError` if there is none."""
    refused: dict[int, str] = {}
    found = checkpoint.load_newest(run, refused)
    lines = list(refused.values())
    if found is None:
        why = f" ({lines[0]})" if lines else ""
        raise UserError(f"{run}: no valid checkpoint{why}; run `corpusmill train` first")
    for line in lines:
        log_line(f"{line}; step {found.step} is")
    return found


def checkpoint_at(run: Folder, step: int | None, key: str = "--step") -> checkpoint.Checkpoint:
    """The checkpoint of a step, None: the newest. Raises `UserError` naming `key` if there is none, `WorkError` if it is damaged."""
    if step is None:
        return newest_checkpoint(run)
    there = checkpoint.steps(run)
    if step not in there:
        steps = ", ".join(map(str, there)) or "none"
        raise UserError(f"{key} {step}: no such checkpoint in {run}; there are {steps}")
    return checkpoint.load_step(run, step)


def load_model(
    config: TrainConfig,
    found: checkpoint.Checkpoint,
    vocab_size: int,
    device: torch.device,
    rewards: bool = False,
    masked: bool = False,
) -> Decoder:
    """The model of a checkpoint, ready to score or to sample; adapters are merged into its weights. Raises `UserError` for a reward
    model, unless it is wanted for its `rewards`, and for a `masked` language model."""
    if not config.model.causal and not masked:
        raise UserError(
            f"{config.name}: is a masked language model, which knows no next token: `corpusmill evaluate` scores text and tasks"
            " with it, `corpusmill export` writes it for transformers"
        )
    if config.model.reward_head and not rewards:
        raise UserError(
            f"{config.name}: is a reward model, which knows no next token: `corpusmill reward` scores answers with it"
        )
    model = with_adapters(Decoder(config.model, vocab_size, config.seed), config.adapter, config.seed)
    checkpoint.restore(found, model)
    return merge(model).to(device).eval()


def identity(
    config: TrainConfig, found: checkpoint.Checkpoint, shards: Shards, ngram_tokens: int, stride: int
) -> str:
    """Hash of all that an evaluation depends on: weights, data, sources read, length of the rows, their stride, precision, n-grams."""
    indexes = [[s.xxh3 for s in split.values()] for split in (shards.train, shards.validation)]
    read = list(shards.read(config.data))
    settings = [
        read,
        config.data.sequence_length,
        stride,
        config.precision,
        ngram_tokens,
        found.state["loader"]["plan"],
    ]
    return hash_json([4, found.weights_xxh3, *indexes, *settings])


def evaluate(
    config: TrainConfig, run: Folder, ngram_tokens: int = NGRAM_TOKENS, stride: int | None = None
) -> dict[str, Any]:
    """Loss (nats a token), perplexity and bits per byte of each source; returns what evaluation.json holds.

    Beside them those of a unigram model of the train split of all sources that the config reads (`unigram`) or of the same
    source alone (`unigram_source`), and of bigram and trigram models (`ngrams`: `corpusmill.train.evaluate.ngrams`) of the tokens that
    the run was `trained_on` and of `all` train tokens, which count at most `ngram_tokens` (0: no such models). Bits per byte =
    nats / ln 2 / UTF-8 bytes of the split's text, the ends of documents scored as tokens that have no bytes: comparable between
    tokenizers. `interval`: of them, over documents.

    Text is read in rows of `window` tokens, each `stride` tokens after the one before, which score every token once; without a
    `stride` they do not overlap and start without context, as in training. `all_sources` has the sums over the sources, `macro` the
    mean over them. The run's folder also gets the losses of each document (`corpusmill.train.evaluate.documents`). Raises `UserError` for a
    stride that is longer than a row.
    """
    length = config.data.sequence_length
    if stride is not None and not 1 <= stride <= length:
        raise UserError(f"--stride: must be 1 to {length} (data.sequence_length), is {stride}")
    stride = stride or length
    world = join(config)
    shards = open_run_data(config)
    found = newest_checkpoint(run)
    of = identity(config, found, shards, ngram_tokens, stride)
    known = _known(run)
    if known.get("of") == of:  # the same weights on the same data: nothing to score again
        return known
    size = shards.set.vocab_size
    model = ParallelModel([load_model(config, found, size, world.device, masked=True)], world)
    scorer = scorer_of(model, config, world, Vocabulary.of(shards))
    baselines = Baselines(config, run, found, shards, ngram_tokens)
    sums: dict[str, dict[str, float]] = {}
    bits: dict[str, tuple[Floats, Floats]] = {}  # and bytes, of each document
    for name, source in shards.validation.items():
        if not source.index.ntokens:
            continue
        documents = document_losses(scorer, source, config.data.micro_batch, stride)
        loss, tokens = (float(np.sum(documents[column].to_numpy())) for column in ("nats", "tokens"))
        if tokens != source.index.scored:
            raise WorkError(f"{name}: scored {tokens:.0f} tokens of {source.index.scored}")
        if world.first:
            keep(run, name, documents)
        sums[name] = {"model": loss, **baselines.losses(source)}
        bits[name] = documents["nats"].to_numpy() / math.log(2), documents["bytes"].to_numpy()
    if not sums:
        raise UserError(
            f"{config.data.shards}: no source has a validation split; set split.validation_share in the recipe"
        )
    indexes = {name: shards.validation[name].index for name in sums}
    sizes = {name: (index.scored, index.text_bytes) for name, index in indexes.items()}
    every = [key for key in next(iter(sums.values())) if all(key in row for row in sums.values())]
    together = {key: sum(row[key] for row in sums.values()) for key in every}
    tokens, size = (sum(column) for column in zip(*sizes.values(), strict=True))
    intervals = {name: interval(*both) for name, both in bits.items()}
    both = [np.concatenate(columns) for columns in zip(*bits.values(), strict=True)]
    result = {
        "name": config.name,
        "step": found.step,
        "of": of,
        "window": length,
        "stride": stride,
        "end_of_document": "scored" if config.model.causal else "given",
        "ngrams": baselines.described(),
        "sources": {name: _row(sums[name], *sizes[name], intervals[name]) for name in sums},
        "all_sources": _row(together, tokens, size, interval(*both)),
        "macro": {"sources": len(sums), "interval": _dumped(mean_of(list(intervals.values())))},
    }
    if world.first:
        write_json(run / EVALUATION, result)
    return result


def interval(bits: Floats, sizes: Floats) -> Estimate | None:
    """Bits per byte of documents and the interval of this ratio; None of text without a byte."""
    return estimate(linearised(bits, sizes), proportion=False) if sizes.sum() else None


def _dumped(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else found.model_dump()


def _row(sums: dict[str, float], tokens: int, size: int, interval: Estimate | None) -> dict[str, Any]:
    """What the result has of a source, or of all: figures of each model, from its sum of losses."""
    found = {key: figures(loss, tokens, size) for key, loss in sums.items()}
    ngrams: dict[str, dict[str, Any]] = {}
    for key in found:
        kind, _, which = key.partition(" ")
        if which:
            ngrams.setdefault(which, {})[kind] = found[key]
    return {
        "tokens": tokens, "bytes": size, **found["model"], "interval": _dumped(interval), "unigram": found["unigram"],
        "unigram_source": found.get("unigram_source"), "ngrams": ngrams,
    }  # fmt: skip


def _known(run: Folder) -> dict[str, Any]:
    """The evaluation that the run's folder holds, if any."""
    try:
        return dict(json.loads((run / EVALUATION).read()))
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def figures(loss: float, tokens: int, size: int) -> dict[str, float]:
    """Loss, perplexity and bits per byte, of a sum of losses in nats over so many tokens and bytes of text."""
    mean = loss / tokens
    return {
        "loss": mean,
        "perplexity": math.exp(min(mean, 700.0)),
        "bits_per_byte": loss / math.log(2) / size if size else float("nan"),
    }
