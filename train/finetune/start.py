"""What a run with `init_from` starts from: a whole model, and of a run of ours the optimizer's state too; and `phase.json`, which
names the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE, EarlierPhase, Phase
from corpusmill.train import checkpoint
from corpusmill.train.finetune.peft import load_adapter
from corpusmill.train.finetune.trunk import checkpoint_of
from corpusmill.train.model.adapters import set_magnitudes, set_virtual, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import relative_to, write_json
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.step import TrainState

Origin = tuple["TrainConfig", checkpoint.Checkpoint]


def begin(
    config: TrainConfig, state: TrainState, shards: Shards, run: Folder, first: bool
) -> checkpoint.Checkpoint | None:
    """Give a new run what `config.init_from` names, and write its `phase.json` (`first`: in the process that writes). Collective.

    Returns what is still to be restored: of a branch its trunk's checkpoint, of any other run None. Raises `UserError` and `WorkError`
    as `load_start`, `load_adapter` and `checkpoint_of` do, and for an optimizer's state that is not there or that of another kind.
    """
    if config.branch is not None:
        return checkpoint_of(config, config.branch, run, first)
    if config.start is None:
        return None
    whole, origin = _loaded(config, shards.set.vocab_size, shards.tokenizer())
    state.model.load_whole(whole.state_dict())
    if config.start.optimizer:
        _take_optimizer(config, state, origin)
    if origin and first:
        write_json(run / PHASE, phase_of(run, config, *origin).model_dump())
    return None


def starting_model(config: TrainConfig, vocab_size: int, tokenizer: bytes) -> Decoder:
    """The model of `config.init_from`, with the adapters of the config, new ones or those of `adapter.init_from`.

    Raises `UserError` and `WorkError` as `load_start` and `load_adapter` do.
    """
    return _loaded(config, vocab_size, tokenizer)[0]


def _loaded(config: TrainConfig, vocab_size: int, tokenizer: bytes) -> tuple[Decoder, Origin | None]:
    assert config.start is not None
    model = Decoder(config.model, vocab_size)
    origin = load_start(model, Folder(config.start.run), tokenizer, config.start.step)
    with_adapters(model, config.adapter, config.seed)
    if config.adapter is not None and config.adapter.init_from:
        load_adapter(model, Folder(config.adapter.init_from))
    else:
        set_magnitudes(model)
        set_virtual(model, config.seed)
    return model, origin


def _take_optimizer(config: TrainConfig, state: TrainState, origin: Origin | None) -> None:
    assert config.start is not None
    if origin is None or origin[0].adapter is not None:
        what = (
            "is no run's folder"
            if origin is None
            else "trained an adapter, whose optimizer is of other parameters"
        )
        raise UserError(f"init_from.optimizer: {config.start.run} {what}: set it to false")
    theirs, found = origin
    for key in ("kind", "state_bits"):
        there, here = getattr(theirs.optimizer, key), getattr(config.optimizer, key)
        if there != here:
            raise UserError(
                f"init_from.optimizer: optimizer.{key} is {there} there and {here} here: set it to {there}, or"
                " init_from.optimizer to false"
            )
    if not found.part(checkpoint.OPTIMIZER):
        raise UserError(
            f"init_from.optimizer: {found.folder} has no optimizer's state, as averages have none: set it to false"
        )
    checkpoint.restore(found, state.model, state.optimizer)


def phase_of(run: Folder, config: TrainConfig, theirs: TrainConfig, found: checkpoint.Checkpoint) -> Phase:
    """What names the checkpoint `found` of another run as the start of the run in the folder `run`."""
    place = Folder(theirs.output_url)
    return Phase(
        earlier=EarlierPhase(
            run=relative_to(run, place, place.url), name=theirs.name, step=found.step, tokens=theirs.data.tokens(found.step),
            config_hash=found.state["config_hash"], weights_xxh3=found.weights_xxh3,
            optimizer=config.start is not None and config.start.optimizer,
        )
    )  # fmt: skip
