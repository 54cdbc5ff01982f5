"""`corpusmill cross-validate`: train once without each fold of the documents, and score what was held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.cross_validation import CROSS_VALIDATION, CrossValidation, FoldResult
from corpusmill.schemas.data import FoldConfig
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.shards import Block, Shard
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.folds import clustered, document_ids, groups
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.trained import read, spread
from corpusmill.train.evaluate.baselines import STRICT
from corpusmill.train.evaluate.fairness.texts import bits_per_byte, document_sums
from corpusmill.train.evaluate.resampling import Floats, bootstrap
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import estimate
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER, dumped
from corpusmill.train.trainer import train

TOKENS = 1_000_000  # of a source whose held-out documents are scored, at most


class Part(NamedTuple):
    """Some blocks of a source."""

    folder: Folder
    blocks: list[tuple[Shard, Block]]


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
    result = summed(config.name, of, seed, results)
    (output / CROSS_VALIDATION).write(result.to_json())
    return result


def summed(name: str, of: int, seed: int, results: list[FoldResult]) -> CrossValidation:
    """The result of all folds. A source has a mean if every fold held out some of it; the others are named."""
    known = list(dict.fromkeys(source for one in results for source in one.sources))
    without = {source: [one.index for one in results if source not in one.sources] for source in known}
    return CrossValidation(
        name=name,
        of=of,
        seed=seed,
        folds=results,
        bits_per_byte=over_folds([one.bits_per_byte for one in results]),
        sources={
            source: over_folds([one.sources[source] for one in results])
            for source, folds in without.items()
            if not folds
        },
        without={source: folds for source, folds in without.items() if folds},
    )


def held_out(config: TrainConfig, run: Folder, place: str, tokens: int) -> FoldResult:
    """Bits per byte of a run's newest checkpoint on the documents that its fold holds out, with clusters of near-copies as units."""
    assert config.data.fold is not None
    shards, found = open_run_data(config), newest_checkpoint(run)
    world = join(config)
    model = ParallelModel([load_model(config, found, shards.set.vocab_size, world.device)], world)
    scorer = Scorer(model, config, world)
    words = TokenText((run / TOKENIZER).read(), shards.set.eos_id, TOKENIZER)
    documents, clusters = clustered(Folder(config.data.fold.ledger_of(shards.folder.url)), [])
    sums, units = dict[str, Floats](), dict[str, list[bytes]]()
    for name, source in shards.read(config.data).items():
        sizes = np.array([block.ntokens for _, block in source.blocks], dtype=np.int64)
        chosen = [number for number in spread(sizes, tokens).tolist() if sizes[number]]
        ids = document_ids(Part(source.folder, [source.blocks[number] for number in chosen]))
        parts, own = [np.empty((0, 2))], list[bytes]()
        for block, names in zip(read([source], [(0, number) for number in chosen], STRICT), ids, strict=True):
            parts.append(document_sums(scorer, source, block, words))
            assert block.held is not None
            own += groups(names, documents, clusters).filter(pa.array(block.held)).to_pylist()
        sums[name], units[name] = np.concatenate(parts), own
    every, every_unit = np.concatenate(list(sums.values())), [one for own in units.values() for one in own]
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
        bits_per_byte=bootstrap(bits_per_byte, every, every_unit),
        sources={name: bootstrap(bits_per_byte, own, units[name]) for name, own in sums.items() if len(own)},
    )


def over_folds(found: Sequence[Estimate]) -> Estimate:
    """The mean of folds, with Student's t."""
    mean = estimate([one.value for one in found], proportion=False)
    return mean.model_copy(update={"n": sum(one.n for one in found), "method": "t over folds"})
