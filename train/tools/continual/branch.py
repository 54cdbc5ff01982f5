"""`corpusmill branch`: the config of a run that continues a checkpoint of another one, its trunk, with a decay of the learning rate, and
perhaps another mixture from there on (Hu et al. 2024, MiniCPM, section 4; Hägele et al. 2024 for the shape 1 - sqrt)."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from corpusmill.common.config import override, parse_yaml, read_yaml, validate
from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig, changed
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.planning import make_plan
from corpusmill.train.finetune.trunk import FREE, check_step
from corpusmill.train.optim.make import rate_at
from corpusmill.train.run_folder import CONFIG, dumped
from corpusmill.train.tools.tune.report import as_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG_YAML = "train.yaml"  # in the branch's folder
Shape = Literal["linear", "sqrt"]


def prepare(
    trunk: tuple[TrainConfig, Folder],
    step: int,
    decay: str,
    shape: Shape = "linear",
    mixture: dict[str, float] | None = None,
    output: str | None = None,
    steps: int | None = None,
    settings: Sequence[str] = (),
) -> TrainConfig:
    """Write the config of a branch to `train.yaml` in its folder, and return it; of a branch that is there already, what was written.

    `decay`: a share of the tokens up to `step`, as `10%`, or a number of steps; `steps`: of the branch, of which the last ones decay (None:
    all do); `mixture`: source -> weight from the first step on (None: the trunk's); `settings`: KEY=VALUE of the config.
    Raises `UserError`, naming the option, for a step that has no checkpoint or not the full learning rate, a decay of no step, a source
    that is not there, a key that a branch cannot change, and a folder that holds another run.
    """
    config, folder = trunk
    length = decay_steps(decay, config, step)
    if steps is not None and steps < length:
        raise UserError(
            f"--steps {steps}: is less than the decay of {length} steps: set it to {length} or more"
        )
    name = f"{config.name}-branch-{step}-{shape}-{length}"
    out = Folder(output or f"{folder.url.rstrip('/')}-branch-{step}-{shape}-{length}")
    begun = bool(checkpoint.steps(out))
    if not begun:
        check_step(folder, step, "--from")
        _check_rate(config, folder, step)
    wanted = dumped(config)
    wanted |= {
        "name": name,
        "output": out.url,
        "branch": {"run": folder.url, "step": step},
        "stop_after": None,
        "may_change": [],
    }
    wanted["schedule"] |= {
        "kind": "wsd", "steps": step + (steps or length), "tokens": None, "floor": 0.0, "decay_steps": length, "decay_shape": shape,
    }  # fmt: skip
    if mixture is not None:
        earlier = [stage for stage in wanted["data"]["stages"] if stage["from_step"] <= step]
        wanted["data"]["stages"] = [*earlier, {"from_step": step + 1, "weights": mixture}]
    made = validate(TrainConfig, override(wanted, list(settings)), "branch")
    if made.output_url != out.url:
        raise UserError("--set output: name the folder with --output")
    lines = changed(dumped(config), dumped(made), allowed=FREE)
    if lines:
        raise UserError(
            f"--set: a branch cannot change {'; '.join(lines)}: leave it out, or start a run of its own with init_from"
        )
    found = _written(out)
    if found is not None:
        different = differences(found, made)
        if different:
            raise UserError(
                f"--output {out}: holds another run ({'; '.join(different)}): name another folder"
            )
        return found
    _check_data(made, mixture)
    (out / CONFIG_YAML).write(as_yaml(dumped(made)).encode())
    return made


def decay_steps(decay: str, config: TrainConfig, step: int) -> int:
    """The steps of a decay that is given as a share of the tokens up to `step` (`10%`), or in steps. Raises `UserError`."""
    share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", decay.strip())
    if not share and not re.fullmatch(r"\d+", decay.strip()):
        raise UserError(
            f"--decay: must be a share of the tokens so far, as 10%, or a number of steps, is '{decay}'"
        )
    if not share:
        found = int(decay)
    else:
        before = config.data.tokens(step)
        more = ceil(Fraction(share[1]) / 100 * before)
        found = config.data.steps_for(before + more) - step if more else 0
    if not found:
        raise UserError(f"--decay {decay}: is 0 steps: give at least 1 step, or a share above 0 %")
    return found


def parse_mixture(text: str) -> dict[str, float]:
    """Source -> weight, from `NAME=W,...` or a YAML file of `NAME: W`. Raises `UserError`."""
    if "=" in text and not Path(text).is_file():
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, _, weight = part.partition("=")
            given[name.strip()] = weight.strip()
    else:
        given = read_yaml(text)
    try:
        return {name: float(weight) for name, weight in given.items()}
    except (TypeError, ValueError):
        raise UserError(
            f"--mixture {text}: must be NAME=WEIGHT,... or a file of NAME: WEIGHT, with numbers as weights"
        ) from None


def differences(found: TrainConfig, made: TrainConfig) -> list[str]:
    """What distinguishes two branches, as `key: of the first -> of the second`; not what any restart may change."""
    lines = changed(dumped(found), dumped(made))
    stages = [[stage.model_dump() for stage in one.data.stages] for one in (found, made)]
    return [*lines, "data.stages: another mixture"] if stages[0] != stages[1] else lines


def _written(out: Folder) -> TrainConfig | None:
    """The config of the branch in a folder; None of a folder without a run. Raises `UserError` if another kind of run is there."""
    try:
        text = (out / CONFIG_YAML).read().decode()
    except FileNotFoundError:
        if (out / CONFIG).exists():
            raise UserError(f"--output {out}: holds another run: name another folder") from None
        return None
    where = str(out / CONFIG_YAML)
    return validate(TrainConfig, parse_yaml(text, where), where)


def _check_rate(config: TrainConfig, trunk: Folder, step: int) -> None:
    peak = config.optimizer.lr
    if rate_at(config, step) >= peak * (1 - 1e-9):
        return
    full = [one for one in checkpoint.steps(trunk) if rate_at(config, one) >= peak * (1 - 1e-9)]
    raise UserError(
        f"--from {step}: the trunk's rate there is {rate_at(config, step):.4g}, and a decay begins at the full one, {peak:g} (schedule.kind"
        f" {config.schedule.kind}); checkpoints with it: {', '.join(map(str, full)) or 'none'}"
    )


def _check_data(config: TrainConfig, mixture: dict[str, float] | None) -> None:
    shards = open_run_data(config)
    for name in mixture or {}:
        if name not in shards.train:
            raise UserError(
                f"--mixture: {config.data.shards} has no source '{name}'{nearest(name, shards.train)} (it has: {', '.join(shards.train)})"
            )
    make_plan(config.data, shards, config.seed, config.schedule.steps)
