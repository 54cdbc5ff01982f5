"""What a checkpoint holds beside weights and optimizer (`state.json`), saved and restored so that the next process
continues as if the run had not stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.errors import WorkError
from corpusmill.schemas.manifest import MANIFEST, hash_json
from corpusmill.train import checkpoint
from corpusmill.train.checkpoint.collectives import first
from corpusmill.train.guard.judge import unhealthy
from corpusmill.train.run_folder import RESULT, dumped, refuse_changes

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.stream import StreamingTokens
    from corpusmill.train.guard.guard import Guard
    from corpusmill.train.log.metrics import MetricsLog
    from corpusmill.train.log.progress import Progress
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.step import TrainState


def check_fresh(run: Folder, refused: dict[int, str], config: TrainConfig) -> None:
    """A first checkpoint that a kill left without its manifest is no loss; what was finished must not be overwritten. One that is not
    the first that this run makes had others before it, which were deleted (`checkpoint.keep_last`). Collective; raises `WorkError`."""
    every = config.checkpoint.every + (config.branch.step if config.branch else 0)

    def check() -> None:
        listed = checkpoint.steps(run)
        finished = (run / RESULT).exists() or any(MANIFEST in files for files in listed.values())
        if listed and (min(listed) > every or finished or len(listed) > 1):
            newest = refused[max(refused)] if refused else str(run)
            raise WorkError(
                f"{newest}; none of the checkpoints ({', '.join(map(str, listed))}) can be used: restore one from a copy,"
                f" or delete {run / 'checkpoints'} to start over"
            )
        checkpoint.abandon(run, list(listed))

    first(check)


def save(
    saver: checkpoint.Saver,
    config: TrainConfig,
    state: TrainState,
    stream: StreamingTokens,
    guard: Guard,
    progress: Progress,
    window: list[list[float]],
    log: MetricsLog | None,
) -> None:
    """Begin to publish a checkpoint of this step. `window`: loss and tokens of each source since the last row, over all
    processes; `log`: None but in the first process, whose state.json is the one that is written."""
    saved = dict[str, Any]()
    if log:
        log.flush()
        saved = {
            "v": 1,
            "step": state.step,
            "loader": stream.state_dict(),
            "guard": guard.state_dict(),
            "window": window,
            **progress.saved(),
            **({"tuned": state.tuned} if config.optimizer.hypergradient else {}),
            "loss_scale": state.loss_scale.state_dict() if state.loss_scale else None,
            "metrics": log.tail(),
            "config": dumped(config),
            "config_hash": hash_json(dumped(config)),
        }
    # An unhealthy checkpoint replaces none of the older ones: a rollback may need one from before it.
    is_unhealthy = unhealthy(guard.history, config.guard) is not None
    outer = state.outer
    pieces = checkpoint.live(state.model, state.optimizer) if outer is None else outer.pieces()
    saver.save(state.step, pieces, saved, 2 * is_unhealthy)


def restore(
    found: checkpoint.Checkpoint,
    config: TrainConfig,
    state: TrainState,
    stream: StreamingTokens,
    guard: Guard,
    progress: Progress,
    world: World,
) -> list[dict[str, Any]]:
    """Load a checkpoint into all of these; return the last rows of metrics.jsonl, which it holds too.

    Raises `UserError` if this config cannot continue that of the checkpoint.
    """
    saved = found.state
    refuse_changes(saved["config"], config, guard.run)
    stream.load_state_dict(saved["loader"])
    if state.outer is None:
        checkpoint.restore(found, state.model, state.optimizer)
    else:
        state.outer.restore(found)
    guard.load_state_dict(saved.get("guard"))
    if state.loss_scale:
        state.loss_scale.load_state_dict(saved["loss_scale"])
    state.tuned = saved.get("tuned", 1.0)
    state.step = found.step
    progress.load(saved)
    state.window.zero_()
    if world.first:  # sums of all processes: one of them carries them on
        sums = torch.tensor(saved["window"], dtype=torch.float64)
        names = saved["loader"].get("made_of", {}).get("sources", stream.sources)
        at = [stream.sources.index(name) for name in names]
        state.window[at] = sums.to(state.window.device)  # a later stage may read more sources
    return list(saved["metrics"])
