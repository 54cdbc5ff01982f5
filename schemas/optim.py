"""How a training config updates weights: the optimizer, and the learning rate over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

if TYPE_CHECKING:
    from corpusmill.schemas.data import DataConfig

ParameterKind = Literal["matrices", "head", "embeddings", "norms", "biases"]

# What a kind takes as its own default, and which keys it has no use for.
DEFAULTS: dict[str, dict[str, Any]] = {
    "lion": {"betas": (0.9, 0.99)}, "lamb": {"eps": 1e-6}, "sgd": {"momentum": 0.9},
}  # fmt: skip
UNUSED = {
    "adamw": ("momentum", "nesterov", "muon_lr", "muon_scale"),
    "muon": ("state_bits",),
    "lion": ("eps", "momentum", "nesterov", "muon_lr", "muon_scale", "state_bits"),
    "adafactor": ("betas", "eps", "momentum", "nesterov", "muon_lr", "muon_scale", "state_bits"),
    "lamb": ("momentum", "nesterov", "muon_lr", "muon_scale", "state_bits"),
    "sgd": ("betas", "eps", "muon_lr", "muon_scale", "state_bits"),
}


class HypergradientConfig(Strict):
    """A factor of the learning rate that follows its hypergradient (Baydin et al. 2018)."""

    rate: float = Field(
        default=0.02, gt=0, lt=1, description="the factor changes by at most this share each time"
    )
    every: int = Field(
        default=1, ge=1, description="steps between two changes, at each of which a device is waited for"
    )
    after: int = Field(
        default=0, ge=0, description="steps before the first change, such as those of a warm-up"
    )
    lowest: float = Field(default=0.1, gt=0, le=1, description="the factor does not fall below")
    highest: float = Field(default=10.0, ge=1, description="nor rise above")


class OptimizerConfig(Strict):
    """The update of the weights. Weight decay is decoupled from the gradient (Loshchilov & Hutter 2019), but for `sgd`,
    where it is added to it."""

    kind: Literal["adamw", "muon", "lion", "adafactor", "lamb", "sgd"] = "adamw"
    lr: float = Field(default=1e-3, gt=0, description="peak learning rate")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="`lion`: default 0.9 and 0.99")
    eps: float = Field(default=1e-8, gt=0, description="`lamb`: default 1e-6")
    weight_decay: float = Field(default=0.1, ge=0)
    decay: list[ParameterKind] = Field(
        default=["matrices", "head"], description="what weight_decay acts on (a tied head is an embedding)"
    )
    grad_clip: float | None = Field(
        default=1.0, gt=0, description="maximum norm of the gradient; null: no clipping"
    )
    grad_clip_value: float | None = Field(
        default=None,
        gt=0,
        description="maximum size of each element of the gradient, before the norm is clipped",
    )
    momentum: float = Field(default=0.95, ge=0, lt=1, description="`muon`, and `sgd` (default 0.9)")
    nesterov: bool = Field(default=True, description="`muon` and `sgd`: Nesterov momentum")
    muon_lr: float | None = Field(
        default=None, gt=0, description="`muon`: learning rate of the matrices; null: lr"
    )
    muon_scale: Literal["match_rms_adamw", "original"] = Field(
        default="match_rms_adamw",
        description="factor of an m x n update: 0.2 sqrt(max(m, n)), so that AdamW's lr holds; or sqrt(max(1, m / n))",
    )
    state_bits: Literal[8, 32] = Field(
        default=32, description="`adamw`: 8 keeps its moments in 8 bits (torchao)"
    )

    ema: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        exclude_if=lambda value: value is None,
        description="decay of an exponential moving average of the weights (0.999 to 0.9999), which is validated beside them; null: none",
    )

    hypergradient: HypergradientConfig | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="tune the schedule's learning rate during the run; null: it is the schedule's",
    )

    @model_validator(mode="before")
    @classmethod
    def defaults(cls, given: Any) -> Any:
        return {**DEFAULTS.get(str(given.get("kind")), {}), **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def moments(self) -> OptimizerConfig:
        for name, beta in zip(("first", "second"), self.betas, strict=True):
            if not 0 <= beta < 1:
                raise ValueError(f"betas: the {name} must be at least 0 and below 1, is {beta}")
        for name in UNUSED[self.kind]:
            default = DEFAULTS.get(self.kind, {}).get(name, type(self).model_fields[name].default)
            if getattr(self, name) != default:
                raise ValueError(f"{name}: has no effect on {self.kind}: leave it out")
        return self


class ScheduleConfig(Strict):
    """The learning rate as a function of the tokens seen: warm-up, then `kind`, down to `floor` x lr.

    Lengths are given in steps or in tokens; `TrainConfig` fills in the steps that tokens come to.
    """

    steps: int = Field(default=1000, ge=1)
    tokens: int | None = Field(
        default=None, ge=1, description="length of the run in tokens instead of steps, up to a whole batch"
    )
    warmup_steps: int = Field(default=100, ge=0)
    warmup_tokens: int | None = Field(default=None, ge=0, description="instead of warmup_steps")
    warmup_from: float | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda value: value is None,
        description="learning rate from which the warm-up rises, such as that at the end of an earlier run; null: 0",
    )
    kind: Literal["cosine", "linear", "inverse_sqrt", "constant", "wsd", "range_test"] = "cosine"
    floor: float = Field(
        default=0.1, ge=0, le=1,
        description="share of lr at the end; `inverse_sqrt`: at least; `range_test`: at the start; not for `constant`",
    )  # fmt: skip
    decay_share: float = Field(default=0.2, gt=0, le=1, description="`wsd`: share of the run that decays")
    decay_steps: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda value: value is None,
        description="`wsd`: steps that decay, in place of decay_share; null: that",
    )
    decay_shape: Literal["linear", "sqrt"] = Field(
        default="linear",
        exclude_if=lambda value: value == "linear",
        description="`wsd`: of the decay over its share x; sqrt: 1 - sqrt(x), soon low and long near the floor",
    )

    @model_validator(mode="after")
    def lengths(self) -> ScheduleConfig:
        if self.tokens is None and self.warmup_tokens is None:
            self.check()
        return self

    def counted(self, data: DataConfig) -> ScheduleConfig:
        """With the steps that its tokens come to, checked. Raises `ValueError` if steps are given that are others."""
        found = {}
        for steps, tokens in (("steps", self.tokens), ("warmup_steps", self.warmup_tokens)):
            if tokens is not None:
                found[steps] = data.steps_for(tokens)
                if steps in self.model_fields_set and getattr(self, steps) != found[steps]:
                    raise ValueError(
                        f"{steps} is {getattr(self, steps)}, and {steps.replace('steps', 'tokens')} {tokens} makes"
                        f" {found[steps]} steps: leave one of them out"
                    )
        result = self.model_copy(update=found)
        result.check()
        return result

    def check(self) -> None:
        """Raises `ValueError` if warm-up and decay do not fit into the run."""
        if self.warmup_steps >= self.steps and self.steps > 1:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} leaves nothing of steps {self.steps}: set warmup_steps to"
                f" {max(1, self.steps // 10)} or raise steps"
            )
        if self.warmup_from is not None and not (self.warmup_steps or self.warmup_tokens):
            raise ValueError("warmup_from has no effect without a warm-up: set warmup_steps, or leave it out")
        if self.kind == "range_test" and (self.warmup_steps or not self.floor):
            raise ValueError(
                "kind range_test rises from floor x lr to lr: set floor above 0 and warmup_steps to 0"
            )
        decay = self.decaying
        for key in ("decay_steps", "decay_shape"):
            if self.kind != "wsd" and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: has no effect on {self.kind}: leave it out, or set kind to wsd")
        if self.decay_steps and self.warmup_steps + decay > self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and decay_steps {decay} exceed steps {self.steps}: set decay_steps to"
                f" {max(1, self.steps - self.warmup_steps)} or less"
            )
        if self.kind == "wsd" and self.warmup_steps + decay > self.steps:
            share = (self.steps - self.warmup_steps) / self.steps
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and a decay of {decay} steps exceed steps {self.steps}:"
                f" set decay_share to {share:.3g} or less"
            )

    @property
    def decaying(self) -> int:
        """Steps at the end of a `wsd` run over which its rate decays."""
        return self.decay_steps or round(self.decay_share * self.steps)
