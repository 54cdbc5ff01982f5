"""What `corpusmill ablate` writes: ablation.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict


class ArmDifference(Strict):
    """An arm's bits per byte less the whole recipe's: positive where it predicts the held-out text worse."""

    value: float
    low: float = Field(description="of the interval of 95 %")
    high: float
    draws: float = Field(description="standard error from the documents that were drawn to learn from")
    documents: float = Field(description="standard error from the documents that are scored")
    p: float = Field(description="of no difference, by Holm over all arms; 1 of the control")
    verdict: Literal["worse", "better", "equal", "unclear"] = Field(
        description="of the arm; equal: the interval lies within the smallest difference of interest"
    )


class HeldOutSet(Strict):
    """Text that is scored. `own`: the user's, and not held out from the recipe's sources."""

    documents: int
    bytes: int
    own: bool


class AblationArm(Strict):
    """One recipe, and how well its text predicts the held-out text."""

    name: str
    documents: int
    tokens: int = Field(description="to train on")
    bits_per_byte: float = Field(description="of trigrams, mean over draws")
    by_set: dict[str, float] = Field(
        description="of each source's held-out text, and of each set of the user's own"
    )
    difference: ArmDifference | None = Field(
        description="of the sets of the user's own together where there are any, else of all held-out text; null: the whole recipe itself"
    )
    differences: dict[str, ArmDifference] = Field(description="of each set")
    cpu_seconds: float | None = Field(
        description="of the stage that is left out, in the whole recipe's run; null: the arm leaves none out"
    )


class Ablation(Strict):
    """`plan`: a hash of the arms, draws and the recipe, made before anything ran."""

    plan: str
    measure: Literal["trigrams"]
    draws: int
    tokens: int = Field(description="that every measurement counts")
    held_out: dict[str, HeldOutSet] = Field(description="by name")
    smallest: float = Field(description="difference of interest, bits a byte")
    arms: list[AblationArm]
