"""`corpusmill forgetting`: bits per byte of every source that a chain of phases was trained on, at the start of the newest phase and
now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError
from corpusmill.schemas.phases import Forgetting, SourceForgetting
from corpusmill.train.evaluate.documents import paired_bits
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import checkpoint_at, interval, load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import compared, linearised, mean_of
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.tools.continual.phases import phases

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import Source


def forgetting(config: TrainConfig, run: Folder) -> Forgetting:
    """Compare the newest checkpoint of a run with the one that the run started from. Costs what two evaluations of the validation
    splits of all phases cost.

    Raises `UserError` if the run continued no other one, if that checkpoint is gone, or if no source has a validation split.
    """
    chain = phases(config, run)
    if len(chain) < 2:
        raise UserError(
            f"{run}: continued no other run, so that nothing was forgotten: name a run with init_from"
        )
    before, now = chain[-2], chain[-1]
    world = join(config)
    size = now.shards.set.vocab_size
    scorers = [
        Scorer(ParallelModel([load_model(part.config, found, size, world.device)], world), config, world)
        for part, found in ((before, checkpoint_at(before.run, before.step)), (now, newest_checkpoint(run)))
    ]
    sources: dict[str, SourceForgetting] = {}
    seen = set[str]()
    for number, part in enumerate(chain):
        trained = {source.name for source in part.plan.sources}
        for name, source in part.shards.validation.items():
            if name not in trained or not source.index.ntokens or source.xxh3 in seen:
                continue  # the same data may be replayed by another name
            seen.add(source.xxh3)
            shown = name if name not in sources else f"{name} ({part.config.name})"
            sources[shown] = _change(scorers, source, number < len(chain) - 1)
    if not sources:
        raise UserError(
            f"{config.data.shards}: no source has a validation split; set split.validation_share in the recipe"
        )
    each = [
        [row.difference for row in sources.values() if row.earlier == earlier] for earlier in (True, False)
    ]
    return Forgetting(
        name=config.name, start=before.run.url, start_step=before.step, step=now.step, sources=sources,
        forgotten=mean_of(each[0]), gained=mean_of(each[1]),
    )  # fmt: skip


def _change(scorers: list[Scorer], source: Source, earlier: bool) -> SourceForgetting:
    (first, second), sizes = paired_bits(scorers, source)
    found = compared(linearised(second, sizes), linearised(first, sizes)) if sizes.sum() else None
    return SourceForgetting(
        earlier=earlier, before=interval(first, sizes), after=interval(second, sizes),
        difference=None if found is None else found.estimate, p=None if found is None else found.p,
    )  # fmt: skip
