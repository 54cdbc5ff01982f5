"""The objective of a run, with the reference that it needs, in the run's own layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.common.storage import Folder
from corpusmill.train.finetune.preference import Preference
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.model import build
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel


def make_objective(
    config: TrainConfig, model: ParallelModel, shards: Shards, world: World
) -> Preference | None:
    """None: the next token. Collective: a reference is the model that training starts from (`init_from`), frozen."""
    if config.objective is None:
        return None
    reference = None
    if config.objective.needs_reference:
        assert config.init_from is not None
        reference = build(config, shards.set.vocab_size, world, frozen=True)
        whole = Decoder(config.model, shards.set.vocab_size)
        load_start(whole, Folder(config.init_from), shards.tokenizer())
        reference.load_whole(whole.state_dict())
    return Preference(config.objective, model, reference, world)
