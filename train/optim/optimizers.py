"""AdamW, Lion, SGD, LAMB and Adafactor, on whole parameters and on shards (DTensor) alike, without waiting for the device."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import local, mean, norm, size

EPS1, EPS2, CLIP, DECAY = 1e-30, 1e-3, 1.0, 0.8  # of Adafactor, as in the paper


@contextmanager
def unless(found_inf: Tensor | None, tensors: Sequence[Tensor]) -> Iterator[None]:
    """If `found_inf` (float32, no dimensions) is not 0, which only the device needs to know, tensors that are changed within
    get back the bits that they had."""
    if found_inf is None:
        yield
        return
    before = [local(t).clone() for t in tensors]
    yield
    for t, old in zip(tensors, before, strict=True):
        local(t).copy_(torch.where(found_inf == 0, local(t), old))


class Watched(torch.optim.Optimizer):
    """An optimizer that changes parameters one by one, in the context `watched` of each, and, like PyTorch's fused kernels, takes
    no step if the attribute `found_inf`, a tensor, is not 0."""

    _step_supports_amp_scaling = True
    watched: Callable[[Tensor], AbstractContextManager[None]] = staticmethod(lambda _: nullcontext())

    def one_by_one(self) -> list[Tensor]:
        """The parameters that it changes so."""
        return [p for group in self.param_groups for p in group["params"]]


class AdamW(torch.optim.AdamW):
    """PyTorch's. Its step is wrapped in one that imports the compiler, to keep it out: two seconds of every start."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        inspect.unwrap(torch.optim.AdamW.step)(self, closure)


class PerParameter(Watched, ABC):
    """An optimizer whose step is one `_update` of each parameter that has a gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        found_inf = getattr(self, "found_inf", None)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state.update(self._start(p))
                    with self.watched(p), unless(found_inf, [p, *state.values()]):
                        self._update(p, p.grad, state, group)

    @abstractmethod
    def _start(self, p: Tensor) -> dict[str, Tensor]:
        """The state before the first step."""

    @abstractmethod
    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Change a parameter and its state in place."""


def _steps(p: Tensor) -> Tensor:
    """The number of steps taken, where it is counted and read without waiting for the device."""
    return torch.zeros((), device=p.device)


class Lion(PerParameter):
    """Lion (Chen et al. 2023): the sign of an interpolated momentum; one moment instead of AdamW's two.

    p <- (1 - lr wd) p - lr sign(b1 m + (1 - b1) g); then m <- b2 m + (1 - b2) g. The sign moves every element by lr, so
    that lr is to be 3 to 10 times lower than AdamW's, and weight_decay as much higher (section 5 of the paper).
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        return {"exp_avg": torch.zeros_like(p)}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        (beta1, beta2), m = group["betas"], state["exp_avg"]
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(m.lerp(grad, 1 - beta1).sign_(), alpha=-group["lr"])
        m.lerp_(grad, 1 - beta2)


class Sgd(PerParameter):
    """SGD with momentum, to the bit `torch.optim.SGD`, whose fused kernel, the only one that reads `found_inf`, does not work
    on shards. Weight decay is added to the gradient: g <- g + wd p; m <- mu m + g; p <- p - lr m, or with Nesterov
    p - lr (g + mu m).
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": 0.0})

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        return {"momentum_buffer": torch.zeros_like(p)} if self.defaults["momentum"] else {}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        if state:
            m = state["momentum_buffer"].mul_(group["momentum"]).add_(grad)
            grad = grad.add(m, alpha=group["momentum"]) if group["nesterov"] else m
        p.add_(grad, alpha=-group["lr"])


class Lamb(PerParameter):
    """LAMB (You et al. 2020): Adam's direction, each tensor's step scaled to the tensor's own norm, for large batches.

    r = m / (sqrt(v) + eps) + wd p, both moments bias-corrected; p <- p - lr (|p| / |r|) r (algorithm 2). Where |p| or |r|
    is 0, the ratio is 1.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        return {"step": _steps(p), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        step = state["step"].add_(1).double()
        m.lerp_(grad, 1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = (m / (1 - beta1**step)).div_((v / (1 - beta2**step)).sqrt_().add_(group["eps"]))
        update.add_(p, alpha=group["weight_decay"])
        weight, length = norm(p, p), norm(update, p)
        ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
        p.sub_(update.mul_(ratio), alpha=group["lr"])


class Adafactor(PerParameter):
    """Adafactor (Shazeer & Stern 2018): a matrix's second moment as the product of a row's and a column's, no first.
    Ours, since `torch.optim.Adafactor` works neither on shards nor without waiting for the device.

    Algorithms 4 and 5 of the paper, with decoupled weight decay: u = g / sqrt(r c / mean(r)), clipped to an RMS of 1;
    p <- (1 - lr wd) p - max(1e-3, RMS(p)) min(lr, 1 / sqrt(t)) u. So lr is relative to the size of the parameter. Of a
    stack of matrices each has its own rows and columns; a vector keeps its whole second moment.
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        means = self._means(p, p)
        return {"step": _steps(p), **{name: torch.zeros_like(value) for name, value in means.items()}}

    def _means(self, x: Tensor, p: Tensor) -> dict[str, Tensor]:
        if p.ndim > 1:
            return {"row_var": mean(x, -1, p), "col_var": mean(x, -2, p)}
        return {"variance": x}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        square, lr = grad.square().add_(EPS1), group["lr"]
        means = self._means(square, p)
        step = state["step"].add_(1).double()
        for name, value in means.items():
            state[name].lerp_(value, (step**-DECAY).to(value.dtype))
        if p.ndim > 1:
            row = state["row_var"]
            variance = (row / mean(row, -2, p)) * state["col_var"]
        else:
            variance = state["variance"]
        update = grad * variance.rsqrt()
        factor = (
            _rms(p, p).clamp(min=EPS2) * (step**-0.5).clamp(max=lr) / (_rms(update, p) / CLIP).clamp(min=1.0)
        )
        p.mul_(1 - lr * group["weight_decay"])
        p.sub_(update.mul_(factor))


def _rms(x: Tensor, parameter: Tensor) -> Tensor:
    found: Tensor = norm(x, parameter) / size(parameter) ** 0.5
    return found
