"""`corpusmill cross-validate`: train once without each fold of the documents, and score what was held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.cross_validation import CROSS_VALIDATION, CrossValidation, FoldResult
from corpusmill.schemas.data import FoldConfig
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_run_data
from corpusmill.train.evaluate.fairness.texts import bits_per_byte, document_sums, sampled
from corpusmill.train.evaluate.resampling import bootstrapped
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER, dumped
from corpusmill.train.trainer import train

TOKENS = 1_000_000  # of a source whose held-out documents are scored, at most
# 97.5 % quantiles of Student's t on 1 to 30 degrees of freedom.
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def cross_validate(
    config: TrainConfig,
    of: int,
    ledger: str | None = None,
    seed: int = 0,
    tokens: int = TOKENS,
    log: Callable[[str], None] = print,
) -> CrossValidation:
    """Train a run for each fold in `<output>/fold-<i>`, or go on with those that have begun, and score the documents that each
    held out (those in blocks of at most `tokens` tokens of a source, spread evenly); writes `<output>/cross-validation.json`.

    Raises what training raises, and `UserError` for a config that has a fold already.
    """
    if config.data.fold is not None:
        raise UserError("data.fold: is set by cross-validation: leave it out of the config")
    output, results = Folder(config.output_url), []
    for index in range(of):
        fold = FoldConfig(of=of, index=index, ledger=ledger, seed=seed)
        place = f"fold-{index}"
        changes = {
            "name": f"{config.name}-{place}",
            "output": (output / place).url,
            "data": {**dumped(config)["data"], "fold": fold.model_dump(mode="json")},
        }
        log(f"fold {index + 1} of {of}: {(output / place).url}")
        own = TrainConfig.model_validate({**dumped(config), **changes})
        train(own)
        results.append(held_out(own, output / place, place, tokens))
    names = [name for name in results[0].sources if all(name in one.sources for one in results)]
    result = CrossValidation(
        name=config.name,
        of=of,
        seed=seed,
        folds=results,
        bits_per_byte=over_folds([one.bits_per_byte for one in results]),
        sources={name: over_folds([one.sources[name] for one in results]) for name in names},
    )
    (output / CROSS_VALIDATION).write(result.to_json())
    return result


def held_out(config: TrainConfig, run: Folder, place: str, tokens: int) -> FoldResult:
    """Bits per byte of a run's newest checkpoint on the documents that its fold holds out."""
    shards, found = open_run_data(config), newest_checkpoint(run)
    world = join(config)
    model = ParallelModel([load_model(config, found, shards.set.vocab_size, world.device)], world)
    scorer = Scorer(model, config, world)
    words = TokenText((run / TOKENIZER).read(), shards.set.eos_id, TOKENIZER)
    sums = {}
    for name, source in shards.train.items():
        if config.data.reads(name):
            parts = [document_sums(scorer, source, block, words) for block in sampled(source, tokens)]
            sums[name] = np.concatenate([np.empty((0, 2)), *parts])
    every = np.concatenate(list(sums.values()))
    assert config.data.fold is not None
    if not len(every):
        raise UserError(
            f"fold {config.data.fold.index}: no document is in it; use fewer folds than {config.data.fold.of}"
        )
    return FoldResult(
        index=config.data.fold.index,
        run=place,
        step=found.step,
        documents=len(every),
        bytes=round(float(every[:, 1].sum())),
        bits_per_byte=bootstrapped(every, bits_per_byte, len(every)),
        sources={name: bootstrapped(own, bits_per_byte, len(own)) for name, own in sums.items() if len(own)},
    )


def over_folds(found: Sequence[Estimate]) -> Estimate:
    """The mean of folds, with Student's t."""
    values = np.array([one.value for one in found])
    n, mean = sum(one.n for one in found), float(values.mean())
    se = float(values.std(ddof=1) / math.sqrt(len(values)))
    width = se * (STUDENT[len(values) - 2] if len(values) - 2 < len(STUDENT) else 1.96)
    return Estimate(
        value=mean, se=se, low=mean - width, high=mean + width, n=n, clusters=len(values), method="t over folds"
    )  # fmt: skip
