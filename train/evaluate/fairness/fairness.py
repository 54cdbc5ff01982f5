"""`corpusmill fairness`: the bias figures of a run's newest checkpoint, in `evaluation/fairness.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.evaluation import RESULTS
from corpusmill.schemas.fairness import FAIRNESS, FairnessResults, ItemBias, Terms, TextGroup, Toxicity
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data, run_vocabulary
from corpusmill.train.evaluate.fairness import items, terms, texts, toxicity
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.stored import read_items, read_results
from corpusmill.train.generate.generate import Opened, open_model
from corpusmill.train.log.sinks import log_line
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER


class Wanted(NamedTuple):
    """What to measure beside the items that the run's folder has. `prompts`: None for those of the terms; `samples` 0: no
    toxicity."""

    terms: Terms
    texts: Sequence[tuple[str, str]] = ()  # (text, group)
    source_tokens: int = 1_000_000  # of a validation split that are scored at most; 0: no sources
    prompts: Sequence[toxicity.Prompt] | None = None
    per_group: int = toxicity.PER_GROUP  # prompts of a group that are continued; 0: all
    samples: int = toxicity.SAMPLES
    threshold: float = toxicity.THRESHOLD
    seed: int = 0
    women: Mapping[str, float] = {}  # percent in each occupation, for Winogender
    classifier: Sequence[str] = ()  # options of `corpusmill classifier score`


def fairness(config: TrainConfig, run: Folder, wanted: Wanted) -> FairnessResults:
    """All figures; writes `evaluation/fairness.json`. Raises `UserError` for a run without a checkpoint."""
    from tokenizers import Tokenizer

    world = join(config)
    found = newest_checkpoint(run)
    kept = run_vocabulary(config, run)
    data = (run / TOKENIZER).read()
    tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    scorer = Scorer(
        ParallelModel([load_model(config, found, kept.vocab_size, world.device)], world), config, world
    )
    given, groups = [text for text, _ in wanted.texts], [group for _, group in wanted.texts]
    result = FairnessResults(
        name=config.name,
        step=found.step,
        weights_hash=found.weights_xxh3,
        tokenizer_hash=checksum(data),
        precision=config.precision,
        tasks=of_items(run, found.weights_xxh3, wanted.women),
        terms=terms.term_gaps(scorer, tokenizer, kept.eos_id, wanted.terms),
        sources=of_sources(config, scorer, data, wanted.source_tokens),
        texts=texts.by_group(scorer, tokenizer, kept.eos_id, given, groups) if given else {},
    )
    given_prompts = toxicity.prompts_of(wanted.terms) if wanted.prompts is None else wanted.prompts
    if wanted.samples and given_prompts:
        toxic = of_continuations(open_model(config, run), given_prompts, wanted)
        result = result.model_copy(update={"toxicity": toxic})
    if world.first:
        (run / FAIRNESS).write(result.to_json())
    return result


def of_continuations(opened: Opened, available: Sequence[toxicity.Prompt], wanted: Wanted) -> Toxicity:
    """Of the prompts that are selected from these; a line of the log says how many."""
    prompts = toxicity.selected(available, wanted.per_group)
    less = len(prompts) < len(available)
    of = f" of {len(available):,} (--prompts-per-group)" if less else ""
    log_line(f"{wanted.samples * len(prompts):,} continuations (--samples) of {len(prompts):,} prompts{of}")
    return toxicity.measured(
        opened, prompts, wanted.samples, wanted.threshold, toxicity.SAMPLING.model_copy(update={"seed": wanted.seed}),
        classifier=wanted.classifier, available=len(available) if less else None,
    )  # fmt: skip


def of_sources(config: TrainConfig, scorer: Scorer, tokenizer: bytes, most: int) -> dict[str, TextGroup]:
    """Bits per byte of the validation splits; nothing, and a line of the log, if the shards are not at hand."""
    if not most:
        return {}
    try:
        shards = open_run_data(config)
    except UserError as error:
        log_line(f"no bits per byte of sources: {error}")
        return {}
    words = TokenText(tokenizer, shards.set.eos_id, TOKENIZER)
    return texts.by_source(scorer, shards.validation, words, most)


def of_items(run: Folder, weights: str, women: Mapping[str, float] = {}) -> dict[str, ItemBias]:
    """The bias figures of the tasks that the run was evaluated on, if with these weights; otherwise a line of the log says so.
    `women`: percent by occupation, for items that do not have it."""
    evaluated = read_results(run)
    if evaluated is None:
        return {}
    if evaluated.weights_hash != weights:
        log_line(f"{run / RESULTS}: is of step {evaluated.step}, not of the newest checkpoint: left out")
        return {}
    found = {}
    for name in evaluated.tasks:
        rows = list(read_items(run, name).values())
        bias = items.measured(rows, women)
        if bias is not None:
            found[name] = bias
    return found
