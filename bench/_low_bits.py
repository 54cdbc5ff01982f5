"""Generation with weights in few bits (`--weights`) beside fp32, and one product beside torchao's of the same matrix."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor, nn

from bench._compress_ways import torchao_config
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.generate.low_bits import Bits, LowBits
from corpusmill.train.generate.product import Product
from corpusmill.train.generate.runner import Runner
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.compress.report import matrices

if TYPE_CHECKING:
    from bench.generate import Size

KINDS: tuple[Bits, ...] = get_args(Bits)
BATCHES = (1, 4, 16)


def generation(size: Size, once: Callable[[Runner, int], float], rounds: int) -> None:
    """Print a table of tokens/s; `once`: seconds of a text of each of so many prompts."""
    made = Decoder(ModelConfig.model_validate(size.model), size.vocabulary, 0).eval()
    runners = {
        bits or "fp32": Runner(copy.deepcopy(made), size.vocabulary, -1, 1024, sole=True, weights=bits)
        for bits in (None, *KINDS)
    }
    inside = sum(weight.numel() for weight in matrices(made).values())
    print(f"### Weights in few bits, {size.name}: {made.parameter_count / 1e6:.0f} M parameters\n")
    print(
        f"{inside / 1e6:.0f} M of them in products of layers; tokens/s, {size.tokens} new ones of each text, prompts"
        " read. All take turns; medians, and of ratios their range.\n"
    )
    print("| batch | fp32 | " + " | ".join(f"{name} | times" for name in KINDS) + " |")
    print("|---|--:|" + "--:|--:|" * len(KINDS))
    for batch in BATCHES:
        found = [{name: once(runner, batch) for name, runner in runners.items()} for _ in range(rounds + 1)]
        rates = {name: batch * size.tokens / median(row[name] for row in found[1:]) for name in runners}
        cells = [f"{rates['fp32']:,.0f}"]
        for name in KINDS:
            times = [row["fp32"] / row[name] for row in found[1:]]
            cells += [f"{rates[name]:,.0f}", f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"]
        print(f"| {batch} | {' | '.join(cells)} |")
    print()


def products(spent: Callable[[Callable[[], Tensor]], float], size: int = 4096) -> None:
    """Print a table of microseconds; `spent`: seconds of a call."""
    from torchao.quantization import quantize_

    weight = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    works: dict[str, Callable[[Tensor], Tensor]] = {"fp32": Product(weight.clone())}
    for bits in KINDS:
        works[bits] = LowBits(weight, bits)
    for name, bits_of in (("int8, torchao", 8), ("int4, torchao", 4)):
        linear = nn.Linear(size, size, bias=False).bfloat16()
        linear.weight.data.copy_(weight)
        quantize_(linear, torchao_config(bits_of))
        works[name] = linear
    print(f"One product of {size:,} x {size:,} weights, µs; torchao {version('torchao')} in bfloat16:\n")
    print(f"| rows | {' | '.join(works)} |")
    print("|---|" + "--:|" * len(works))
    for rows in BATCHES:
        x = torch.randn(rows, size, generator=torch.Generator().manual_seed(rows))
        given = {name: x.bfloat16() if "torchao" in name else x for name in works}
        cells = [f"{spent(lambda w=work, g=given[name]: w(g)) * 1e6:,.0f}" for name, work in works.items()]  # type: ignore[misc]
        print(f"| {rows} | {' | '.join(cells)} |")
    print()
