"""The objective of a run, with the reference that it needs, in the run's own layout."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from corpusmill.common.storage import Folder
from corpusmill.train.data.infill import Infill
from corpusmill.train.data.masking import Masking
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.splits import validation_losses
from corpusmill.train.finetune.preference import Figures, Preference
from corpusmill.train.finetune.reinforce import Reinforcement
from corpusmill.train.finetune.reward import values
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim.average import averaged
from corpusmill.train.parallel.model import build
from corpusmill.train.precision.adapt import autocast
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.rewriting import Rewriting
    from corpusmill.train.data.shards import Shards, Source
    from corpusmill.train.log.progress import Progress
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel
    from corpusmill.train.step import TrainState


def make_objective(
    config: TrainConfig, model: ParallelModel, shards: Shards, world: World
) -> Preference | Reinforcement | None:
    """None: the next token. Collective: a reference is the model that training starts from (`init_from`), frozen. With an adapter it
    is `model` itself, whose weights are those of `init_from`, without the adapter: it takes no memory."""
    if config.reinforcement is not None:
        needed = config.reinforcement.beta > 0
        return Reinforcement(
            config, model, _reference(config, model, shards, world) if needed else None, shards, world
        )
    if config.objective is None:
        return None
    if config.model.reward_head:
        for part in model.parts:
            part.score = values
    needed = config.objective.needs_reference
    return Preference(
        config.objective, model, _reference(config, model, shards, world) if needed else None, world
    )


def _reference(config: TrainConfig, model: ParallelModel, shards: Shards, world: World) -> ParallelModel:
    if config.adapter is not None:
        return model
    assert config.start is not None
    reference = build(config, shards.set.vocab_size, world, frozen=True)
    whole = Decoder(config.model, shards.set.vocab_size)
    load_start(whole, Folder(config.start.run), shards.tokenizer(), config.start.step)
    reference.load_whole(whole.state_dict())
    return reference


def validate(
    progress: Progress,
    state: TrainState,
    sources: dict[str, Source],
    world: World,
    objective: Preference | Reinforcement | None,
    rewrite: Rewriting | None,
) -> None:
    """Keep in `progress` what validation finds at this step: of the weights, of their average, and of gaps in documents; collective. Rows
    are masked as `rewrite` does, always by the same masks."""
    given = state.model, state.config, sources, world
    with nullcontext() if state.outer is None else state.outer.in_common():
        progress.validation, progress.preference = validated(*given, objective, rewrite)
        if isinstance(rewrite, Infill):
            progress.validation_infill = validation_losses(*given, rewrite.middles)
    if state.config.optimizer.ema:
        with averaged(state.model, state.optimizer):
            progress.validation_ema, _ = validated(*given, objective, rewrite)
    progress.plateau.see(progress.validation, state.step, state.config.validation)


def validated(
    model: ParallelModel,
    config: TrainConfig,
    sources: dict[str, Source],
    world: World,
    objective: Preference | Reinforcement | None,
    rewrite: Rewriting | None = None,
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """`validation_losses`; or of an objective its losses on the same sample, and by source what it reports beside them."""
    if objective is None:
        hide = rewrite.fixed if isinstance(rewrite, Masking) else None
        return validation_losses(model, config, sources, world, hide), {}
    found: dict[str, Figures] = {}
    length, size = config.data.sequence_length, config.data.micro_batch
    for name, source in sources.items():
        if source.index.ntokens:
            rows = sample(source, length, config.validation.tokens, world.data_rank, world.data_size, size)
            found[name] = objective.evaluate(list(rows), partial(autocast, config, world.device))
    return {name: one.loss for name, one in found.items()}, {name: one.named for name, one in found.items()}
