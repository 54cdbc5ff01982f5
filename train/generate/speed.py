"""How fast a model generates on this machine: tokens a second of reading prompts and of writing, at several batch sizes, the time to
the first token, and memory: `corpusmill evaluate --speed`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from corpusmill.schemas.evaluation import SPEED, BatchSpeed, SpeedResults
from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import open_model
from corpusmill.train.generate.request import Request
from corpusmill.train.log.metrics import memory_mib

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.generate.runner import Runner

BATCHES = (1, 4, 16)
WARM, ROUNDS = 3, 5  # rounds that do not count, and those that do
FIRSTS = 20  # times to the first token, one prompt at a time


class Round(NamedTuple):
    """Seconds until all prompts of a batch had their first token, and from there to the end of all."""

    prefill: float
    decode: float


def measure(config: TrainConfig, run: Folder, batches: Sequence[int] = BATCHES) -> SpeedResults:
    """Measure the newest checkpoint and write `evaluation/speed.json`. Prompts of a quarter of the context are random tokens, texts
    fill half of what is left, and none ends early. Medians, lowest and highest values of `ROUNDS` rounds after `WARM`
    that do not count."""
    opened = open_model(config, run)
    runner = opened.runner
    prompt = max(runner.context // 4, 1)
    new = max((runner.context - prompt) // 2, 2)
    found = []
    for batch in batches:
        rounds = [one_round(runner, batch, prompt, new) for _ in range(WARM + ROUNDS)][WARM:]
        prefill, decode = (sorted(part) for part in zip(*rounds, strict=True))
        read, written = batch * prompt, batch * (new - 1)
        found.append(
            BatchSpeed(
                batch=batch,
                prefill_tokens_per_second=read / statistics.median(prefill), prefill_low=read / prefill[-1], prefill_high=read / prefill[0],
                decode_tokens_per_second=written / statistics.median(decode), decode_low=written / decode[-1],
                decode_high=written / decode[0],
            )
        )  # fmt: skip
    firsts = sorted([one_round(runner, 1, prompt, 2).prefill for _ in range(WARM + FIRSTS)][WARM:])
    result = SpeedResults(
        step=opened.step, device=str(runner.device), threads=torch.get_num_threads(), precision=config.precision, prompt_tokens=prompt,
        new_tokens=new, rounds=ROUNDS, batches=found, first_token_p50=statistics.median(firsts), first_token_p95=firsts[int(0.95 * (FIRSTS - 1))],
        memory_mib=memory_mib(runner.device),
    )  # fmt: skip
    (run / SPEED).write(result.to_json())
    return result


def one_round(runner: Runner, batch: int, prompt: int, new: int) -> Round:
    """`batch` prompts at once, each of `prompt` tokens, that are continued by `new` ones."""
    engine = Engine(runner, batch)
    draw = torch.Generator().manual_seed(batch)
    ids = torch.randint(runner.vocab_size, (batch, prompt), generator=draw).tolist()
    onward = torch.ones(runner.vocab_size, dtype=torch.bool, device=runner.device)
    onward[runner.eos_id] = False
    sampling = Sampling(max_tokens=new, temperature=0.0)
    for number, one in enumerate(ids):
        engine.submit(Request(one, sampling, number, allowed=lambda _: onward))
    began = time.monotonic()
    waiting, first = batch, 0.0
    while engine.busy:
        for event in engine.step():
            if event.token is not None and len(event.request.tokens) == 1:
                waiting -= 1
                first = time.monotonic() if waiting == 0 else first
    return Round(first - began, time.monotonic() - first)
