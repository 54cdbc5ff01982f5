"""The trainer on a CPU: tokens/s of `train_step` beside a plain PyTorch loop of the same model, alternating, in one process."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import _bare


class Size(NamedTuple):
    """A model, and what is measured of it: `steps` in a round, `rounds` with one state, `states` fresh ones."""

    model: dict[str, Any]
    vocabulary: int
    length: int = 256
    rows: int = 8  # of a step
    micro: int = 4
    steps: int = 1
    rounds: int = 4
    states: int = 2


SIZES = (
    Size({"dim": 320, "layers": 6, "heads": 5, "kv_heads": 5}, 8192, steps=2),
    # configs/train/30m.yaml
    Size({"dim": 512, "layers": 7, "heads": 8, "kv_heads": 4, "qk_norm": True}, 16_384),
)
MEMORY, LOADER, PLAIN = "train, from memory", "train, from the loader", "plain PyTorch"


class Measured(NamedTuple):
    """Of a size: seconds of each round by loop, the share of its rounds that the loop waited for the loader."""

    parameters: int
    seconds: dict[str, list[float]]
    stall: float | None
    missing: str | None  # why the loader is not measured
    difference: float  # of the two models' losses, nats

    def ratio(self, loop: str) -> tuple[float, float, float]:
        """Times the plain loop's speed: median, lowest and highest of the rounds, each beside the plain one of its round."""
        pairs = zip(self.seconds[PLAIN], self.seconds[loop], strict=True)
        found = sorted(plain / mine for plain, mine in pairs)
        return median(found), found[0], found[-1]


def measure(size: Size) -> Measured:
    """All loops of a size, alternating. Raises `AssertionError` if the two models do not give the same loss."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            from bench._loader_set import write_set

            root, missing = write_set(folder, size.vocabulary, blocks=1, tars=1), None
        except ModuleNotFoundError as error:
            root, missing = None, f"not measured: {error.name} is not installed"
        found = Measured(0, {}, None, missing, 0.0)
        waited = [0.0]
        for number in range(size.states):
            parameters, difference, loops, close = _loops(size, root, waited)
            found = found._replace(parameters=parameters, difference=max(found.difference, difference))
            for loop in loops.values():  # to warm up
                loop()
            waited[0] = waited[0] if number else 0.0
            for turn in range(size.rounds):
                names = list(loops)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    before, began = waited[0], time.perf_counter()
                    for _ in range(size.steps):
                        loops[name]()
                    found.seconds.setdefault(name, []).append(time.perf_counter() - began)
                    assert name == LOADER or waited[0] == before
            close()
    if LOADER in found.seconds:
        found = found._replace(stall=waited[0] / sum(found.seconds[LOADER]))
    return found


def _loops(
    size: Size, root: str | None, waited: list[float]
) -> tuple[int, float, dict[str, Callable[[], Any]], Callable[[], None]]:
    """Parameters, difference of losses, loops by name, each a function of one step on a state of its own; and how to end."""
    import torch

    from bench import _plain_gpt
    from bench._train_ours import make_state, memory_batch, whole
    from corpusmill.train.step import train_step

    def state() -> Any:
        return make_state(
            size.model, size.vocabulary, rows=size.rows, micro=size.micro, length=size.length, sources=2
        )

    ours, streamed = state(), state()
    plain = _plain_gpt.PlainGPT(
        _plain_gpt.Sizes(
            size.vocabulary, size.model["dim"], size.model["layers"], size.model["heads"], size.model["kv_heads"],
            ours.config.model.hidden, size.length, size.model.get("qk_norm", False),
        )
    )  # fmt: skip
    plain.load_state_dict(whole(ours).state_dict())
    batches = [memory_batch(size.rows, size.length, size.vocabulary, number=n) for n in range(8)]
    with torch.no_grad():
        first = {name: batches[0][name][: size.micro] for name in ("tokens", "labels")}
        difference = abs(float(whole(ours)(**first).mean()) - float(plain(**first)))
    assert difference < 1e-5, f"the plain model's loss is {difference} nats off"
    optimizer = _plain_gpt.make_adamw(plain)
    count = size.rows // size.micro
    taken = _plain_gpt.forever(batches)
    plainly = _plain_gpt.forever(batches)
    number = iter(range(10**9))

    def plain_step() -> None:
        batch = next(plainly)
        parts = zip(batch["tokens"].split(size.micro), batch["labels"].split(size.micro), strict=True)
        _plain_gpt.step(plain, optimizer, parts, count, next(number))

    loops: dict[str, Callable[[], Any]] = {
        MEMORY: lambda: train_step(ours, next(taken), float(size.rows * size.length)), PLAIN: plain_step
    }  # fmt: skip
    if root is None:
        return ours.model.parameter_count, difference, loops, lambda: None
    from corpusmill.train.data import StreamingTokens

    stream = StreamingTokens(root, sequence_length=size.length, global_batch=size.rows)

    def streamed_step() -> None:
        began = time.perf_counter()
        batch = next(stream)
        waited[0] += time.perf_counter() - began
        train_step(streamed, batch, float((batch["labels"] >= 0).sum()))

    return ours.model.parameter_count, difference, {**loops, LOADER: streamed_step}, stream.close


def lines(size: Size, found: Measured) -> list[str]:
    """Rows of the table."""
    tokens, rows = size.steps * size.rows * size.length, []
    for name, seconds in found.seconds.items():
        middle, low, high = found.ratio(name)
        speed = f"{tokens / median(seconds):,.0f} | {middle:.3f} ({low:.3f} to {high:.3f})"
        stall = f"{found.stall:.2%}" if name == LOADER and found.stall is not None else ""
        rows.append(f"| {found.parameters / 1e6:.1f} M | {name} | {speed} | {stall} |")
    if found.missing:
        rows.append(f"| {found.parameters / 1e6:.1f} M | {LOADER} | {found.missing} | | |")
    return rows


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.train", description=f"{__doc__} About three minutes."
    ).parse_args()
    import torch

    _bare.stand_in()
    results = [(size, measure(size)) for size in SIZES]
    size = SIZES[0]
    sys.stdout.write(
        f"fp32, {torch.get_num_threads()} threads, PyTorch {torch.__version__}; a step is {size.rows} sequences of"
        f" {size.length} in micro-batches of {size.micro}. The plain loop is `bench/_plain_gpt.py`: the same mathematics (same"
        f" weights, losses within {max(found.difference for _, found in results):.0e} nats), fused AdamW, clipping, a cosine"
        f" rate, from memory. From the loader documents are kept apart, which the plain loop does not do. Speeds are medians"
        f" of {size.rounds * size.states} rounds in turn, on {size.states} fresh states; a ratio is taken within a round.\n\n"
        "| parameters | loop | tokens/s | times plain: median (lowest to highest) | waited for the loader |\n"
        "|---|---|---:|---:|---:|\n"
    )
    sys.stdout.write("".join(line + "\n" for size, found in results for line in lines(size, found)))


if __name__ == "__main__":
    main()
