"""A run that continues another one: where it starts, what of the earlier data it reads again, and what is kept of that."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict

PHASE = "phase.json"


class StartConfig(Strict):
    """The checkpoint that training starts from."""

    run: str = Field(
        description="folder or URL of a run, or of a model in the Hugging Face layout (without the other keys)"
    )
    step: int | Literal["stable"] | None = Field(
        default=None,
        description="of the run's checkpoint; stable: the newest one whose step had the full learning rate, as those of a WSD"
        " schedule before its decay; null: the newest",
    )
    optimizer: bool = Field(
        default=False, description="take the optimizer's state too, of a run with the same kind of optimizer"
    )


class BranchConfig(Strict):
    """The checkpoint of a trunk that a run continues as a branch: weights, optimizer, place in the data, all that a restart restores."""

    run: str = Field(
        description="folder or URL of the trunk, a run; needed until the branch's first checkpoint"
    )
    step: int = Field(ge=1, description="of the trunk's checkpoint; the branch's first step is the next one")


class ReplayConfig(Strict):
    """Data of an earlier run that is read again, so that less of it is forgotten (Ibrahim et al. 2024)."""

    run: str = Field(
        description="folder or URL of a run, whose sources are read in the proportions in which it was trained on them"
    )
    share: float = Field(
        gt=0, lt=1, description="of the tokens; those of the config's own sources are scaled to the rest"
    )
    prefix: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]*)?$",
        description="put before the names of that run's sources, where both sets have one of the same name",
    )


class EarlierPhase(Strict):
    """The checkpoint of another run that a run started from."""

    run: str = Field(description="relative to this run's folder if both are local, else its URL")
    name: str
    step: int = Field(ge=0)
    tokens: int = Field(ge=0, description="that the run was trained on up to this step")
    config_hash: str = Field(description="of the config in that checkpoint")
    weights_xxh3: str
    optimizer: bool = Field(description="whether its optimizer's state was taken too")


class Phase(Strict):
    """`phase.json` in the folder of a run that started from another run's checkpoint: phases form a chain."""

    kind: Literal["corpusmill-phase-v1"] = "corpusmill-phase-v1"
    earlier: EarlierPhase
