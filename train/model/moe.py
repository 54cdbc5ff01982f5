"""Mixture of experts (Shazeer et al. 2017): a router sends each token to k of E feed-forwards and drops none.

Shapes: N = B x T tokens, C = dim, F = width of an expert, E experts, k = top_k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig

grouped_mm: Callable[..., Tensor] | None = getattr(F, "grouped_mm", None)  # since PyTorch 2.10


class Routed(NamedTuple):
    """What a router did: its weighted losses of each token, float32 [B, T], and the load of the experts."""

    balance_loss: Tensor
    router_z_loss: Tensor
    load: Tensor  # int64 [E]: tokens that each expert got


class Experts(nn.Module):
    """The feed-forward of a layer with experts.

    Weights of a token's experts are their scores, softmax or sigmoid, normalised to 1 over the k chosen. `bias` is added
    to the scores for the choice alone (Wang et al. 2024, DeepSeek-V3); `move_biases` sets it.
    """

    expert_split: ClassVar[dict[str, int]] = {"gate": 0, "up": 0, "down": 0}
    tensor_split: ClassVar[dict[str, int]] = {"gate": 1, "up": 1, "down": 2}

    def __init__(self, config: ModelConfig, feed_forward: type[nn.Module]) -> None:
        super().__init__()
        moe = config.moe
        assert moe is not None
        self.split: Split = WHOLE
        # With expert parallelism: `corpusmill.train.parallel.tensor.Exchange`.
        self.exchange: Callable[..., Tensor] | None = None
        self.config, self.activation = moe, config.activation
        hidden = moe.ffn_dim or config.hidden
        gated = config.activation == "swiglu"
        self.router = nn.Linear(config.dim, moe.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(moe.experts, hidden, config.dim)) if gated else None
        self.up = nn.Parameter(torch.empty(moe.experts, hidden, config.dim))
        self.down = nn.Parameter(torch.empty(moe.experts, config.dim, hidden))
        self.shared = feed_forward(config, moe.shared_experts * hidden) if moe.shared_experts else None
        self.bias: Tensor
        self.register_buffer("bias", torch.zeros(moe.experts))  # float32, and moved only with `balance: bias`

    def forward(self, x: Tensor) -> tuple[Tensor, Routed]:
        given, x = x, self.split.gather(x, exact=True)  # the router computes in float32
        tokens = x.flatten(0, 1)  # [N, C]
        weights, chosen, routed = self.route(x)
        order = chosen.flatten().argsort(stable=True)  # [N k]: pairs of token and expert, expert by expert
        sent = tokens[order // self.config.top_k]
        if self.exchange is None:
            made = self.compute(sent, routed.load)
        else:
            made = self.exchange(self.compute, sent, routed.load)
        back = made[order.argsort()].view(len(tokens), self.config.top_k, -1)
        y = self.split.scatter((back * weights[..., None].to(back.dtype)).sum(1).view(x.shape))
        return (y if self.shared is None else y + self.shared(given)), routed

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Routed]:
        """Weights, float32, and numbers of each token's experts [N, k], in float32 throughout (Switch, Fedus et al. 2022).

        The balance loss is Switch's, E x sum over experts of share x mean probability, taken over each row of B:
        so neither the micro-batch nor the number of processes changes it.
        """
        moe, (B, T, _) = self.config, x.shape
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(x.float(), self.router.weight.float())  # [B, T, E]
        scores = logits.softmax(-1) if moe.scores == "softmax" else logits.sigmoid()
        chosen = (scores.detach() + self.bias).topk(moe.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        counts = torch.zeros(B, moe.experts, dtype=torch.int64, device=x.device)
        counts.scatter_add_(1, chosen.flatten(1), torch.ones_like(chosen.flatten(1)))
        none = logits.new_zeros(B, T)
        balance_loss, router_z_loss = none, none
        if moe.balance == "loss":
            share = counts / (T * moe.top_k)
            probability = scores / scores.sum(-1, keepdim=True)
            balance_loss = moe.balance_loss * moe.experts * (share[:, None] * probability).sum(-1)
        if moe.router_z_loss:
            router_z_loss = moe.router_z_loss * logits.logsumexp(-1).square()
        routed = Routed(balance_loss, router_z_loss, counts.sum(0))
        return weights.flatten(0, 1), chosen.flatten(0, 1), routed

    def compute(self, x: Tensor, load: Tensor) -> Tensor:
        """x [N k, C] through the experts: the first `load[0]` rows through expert 0, and so on."""
        up = grouped(x, self.up, load)
        if self.gate is not None:
            up = F.silu(grouped(x, self.gate, load)) * up
        else:
            up = F.gelu(up, approximate="tanh") if self.activation == "gelu" else squared_relu(up)
        return grouped(up, self.down, load)


def squared_relu(x: Tensor) -> Tensor:
    """So et al. 2021. As a product: under autocast CUDA computes a `square` in float32, and autograd keeps its input so."""
    x = F.relu(x)
    return x * x


def grouped(x: Tensor, weight: Tensor, load: Tensor) -> Tensor:
    """x [N, in] times weight [E, out, in], `load[e]` rows for each expert e in turn; [N, out]."""
    if torch.is_autocast_enabled(x.device.type):  # which does not cover grouped_mm
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    if grouped_mm is not None and x.dtype == torch.bfloat16:
        found: Tensor = grouped_mm(x, weight.transpose(-2, -1), offs=load.cumsum(0).to(torch.int32))
    else:  # other types have no grouped product on CUDA, or in compiled code
        found = one_by_one(x, weight, load)
    return found


# A custom operation, since it reads the loads: compiled code calls it without tracing into it.
@torch.library.custom_op("corpusmill::one_by_one", mutates_args=())
def one_by_one(x: Tensor, weight: Tensor, load: Tensor) -> Tensor:
    """`grouped` as a loop over the experts: the reference. It waits for the device, for the loads."""
    parts = torch.split(x, load.tolist())
    return torch.cat([part @ w.T for part, w in zip(parts, weight, strict=True)])


@torch.library.custom_op("corpusmill::one_by_one_weights", mutates_args=())
def one_by_one_weights(grad_output: Tensor, x: Tensor, load: Tensor) -> Tensor:
    """The gradient [E, out, in] of the weights, from that of the result [N, out]."""
    sizes = load.tolist()
    return torch.stack(
        [g.T @ part for g, part in zip(torch.split(grad_output, sizes), torch.split(x, sizes), strict=True)]
    )


@one_by_one.register_fake
def _(x: Tensor, weight: Tensor, load: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@one_by_one_weights.register_fake
def _(grad_output: Tensor, x: Tensor, load: Tensor) -> Tensor:
    return x.new_empty(load.shape[0], grad_output.shape[1], x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight, load = ctx.saved_tensors
    grad_output = grad_output.contiguous()
    to_x = one_by_one(grad_output, weight.transpose(-2, -1), load)
    return to_x, one_by_one_weights(grad_output, x, load), None


one_by_one.register_autograd(_backward, setup_context=_setup_context)


def load_figures(config: ModelConfig, load: Tensor) -> dict[str, dict[str, float]]:
    """The load of the fullest and the emptiest expert of each layer, from `load` [layers, E]; 1 is an even share."""
    share = load.double() / load.double().mean(1, keepdim=True).clamp(min=1)
    ends = torch.stack((share.amax(1), share.amin(1)), dim=1).tolist()
    return {
        f"layer_{number}": {"max": high, "min": low}
        for number, (high, low) in enumerate(ends) if config.has_experts(number)
    }  # fmt: skip


@torch.no_grad()
def move_biases(experts: dict[int, Experts], load: Tensor) -> None:
    """Balance without a loss (Wang et al. 2024): raise an expert's bias by `bias_rate` if it got fewer tokens than the mean
    in a step, lower it if more. `load` [layers, E]: tokens of all processes in the step."""
    error = load.double().mean(1, keepdim=True) - load
    for number, layer in experts.items():
        if layer.config.balance == "bias":
            layer.bias += layer.config.bias_rate * error[number].sign().to(layer.bias.dtype)
