"""Dynamic loss scaling for fp16 (Micikevicius et al. 2018), whose gradients underflow unless the loss is multiplied. All of it
is arithmetic on the device, so that no step waits to know whether it overflowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from corpusmill.schemas.parallel import LossScaleConfig

CEILING = 2.0**32  # gradients of 0 would let it grow without limit


class LossScale:
    """Multiply the loss by `scale` (float32, no dimensions); then `unscale` the gradients, and `update`.

    The rule is Megatron-LM's: an overflow takes one from the hysteresis, and once that is 0 lowers the scale, not below the
    floor; `growth_interval` steps in a row without one raise it and restore the hysteresis. Overflows at the floor raise no
    error: the norm is not finite and `Metrics.loss_scale` is the floor.
    """

    def __init__(self, config: LossScaleConfig, device: torch.device | None = None) -> None:
        self.config = config
        self.scale = torch.tensor(config.initial, dtype=torch.float32, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=device)  # in a row, since it last grew
        # Overflows left before it backs off.
        self.hysteresis = torch.full_like(self.good_steps, config.hysteresis)

    def lift(self, floor: float) -> None:
        """Reset the scale if it is at `floor` or below: growing from there takes longer than the guard's patience."""
        if float(self.scale) <= floor:
            self.__init__(self.config, self.scale.device)  # type: ignore[misc]

    def unscale(self, gradients: Sequence[Tensor]) -> None:
        """Divide the gradients by the scale, in place. What overflowed stays inf or NaN, and so does their norm."""
        if gradients:
            torch._foreach_mul_(list(gradients), (1.0 / self.scale).to(gradients[0].device))

    def update(self, finite: Tensor) -> None:
        """Adapt the scale to whether the gradient's norm of a step, over all processes, was `finite`."""
        config, finite = self.config, finite.to(self.scale.device)
        self.good_steps = torch.where(finite, self.good_steps + 1, 0)
        self.hysteresis = torch.where(finite, self.hysteresis, (self.hysteresis - 1).clamp(min=0))
        grown = self.good_steps == config.growth_interval
        lower = torch.where(self.hysteresis == 0, config.backoff_factor, 1.0)
        factor = torch.where(finite, torch.where(grown, config.growth_factor, 1.0), lower)
        self.scale = (self.scale * factor).clamp(config.floor, max(CEILING, config.initial))
        self.good_steps = torch.where(grown, 0, self.good_steps)
        self.hysteresis = torch.where(grown, config.hysteresis, self.hysteresis)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; waits for the device."""
        return {
            "scale": float(self.scale), "good_steps": int(self.good_steps), "hysteresis": int(self.hysteresis),
        }  # fmt: skip

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for name in ("scale", "good_steps", "hysteresis"):
            getattr(self, name).fill_(saved[name])
