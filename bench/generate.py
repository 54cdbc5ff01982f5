"""Generation on a CPU: prefill, decoding at batches of 1, 4 and 16, time to the first token, beside computing the whole context for
each token and `transformers`' `generate` of the same model; then weights in few bits. Weights are random: time does not depend on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from bench import _low_bits as low_bits
from bench.peers import SCRIPTS, NotMeasured, environment
from corpusmill.common.storage import Folder
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.speculate import PromptLookup
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import write_weights

TRANSFORMERS = ("transformers==5.3.0", "tokenizers==0.22.2")
CONTEXT, PROMPT, PREFILL = 1024, 64, 256
LONG = 512  # new tokens, for the cache beside none
ROUNDS = 5
READ = 512 << 20  # bytes, whose reading shows what memory gives
LARGE = 64 << 20  # bytes of weights from which on they are not all in caches
SAMPLING = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}


class Size(NamedTuple):
    """A model; new tokens of a timed text."""

    name: str
    model: dict[str, Any]
    vocabulary: int
    tokens: int
    whole: bool  # whether 512 tokens without a cache are really made, or their time computed from that of some lengths


SIZES = (
    Size(
        "quick start's shape",  # configs/train/quickstart.yaml
        {"dim": 128, "layers": 2, "heads": 2, "qk_norm": True, "tie_embeddings": False}, 8192, 256, True,
    ),
    Size(
        "30 M",  # configs/train/30m.yaml
        {"dim": 512, "layers": 7, "heads": 8, "kv_heads": 4, "qk_norm": True}, 16_384, 64, False,
    ),
)  # fmt: skip


WIDE = Size(
    "210 M", {"dim": 1024, "layers": 16, "heads": 16, "kv_heads": 8, "qk_norm": True}, 16_384, 16, False
)  # fmt: skip


def prompts(size: Size, count: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, size.vocabulary, (count, length), generator=generator).tolist()


def spent(work: Callable[[], Any]) -> float:
    """Median seconds of several calls, after one to warm up."""
    work()
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return median(found)


def text_of(engine: Engine, texts: list[list[int]], tokens: int, **sampling: Any) -> int:
    """Generate; the number of steps."""
    for number, prompt in enumerate(texts):
        given = Sampling(max_tokens=tokens, **{**SAMPLING, **sampling})
        engine.submit(Request(list(prompt), given, number))
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
    return steps


def once(size: Size, runner: Runner, batch: int, length: int, tokens: int) -> float:
    """Seconds of `tokens` new tokens of each of `batch` texts, prompts read."""
    engine, texts = Engine(runner, batch), prompts(size, batch, length)
    began = time.perf_counter()
    text_of(engine, texts, tokens)
    return time.perf_counter() - began


def decoding(size: Size, runner: Runner, batch: int, length: int, tokens: int) -> float:
    """The median of such texts, in one engine."""
    engine, texts = Engine(runner, batch), prompts(size, batch, length)
    return spent(lambda: text_of(engine, texts, tokens))


def first_token(size: Size, runner: Runner, others: int, count: int = 20) -> list[float]:
    """Seconds from a request to its first token, sorted, while `others` texts are being generated."""
    engine = Engine(runner, others + 1)
    given = Sampling(max_tokens=10**6, **SAMPLING)
    for number, prompt in enumerate(prompts(size, others, PROMPT)):
        engine.submit(Request(list(prompt), given, number))
    for _ in range(8):
        engine.step()
    found = []
    for prompt in prompts(size, count + 1, 128):
        request = Request(list(prompt), given)
        began = time.perf_counter()
        engine.submit(request)
        while not request.tokens:
            engine.step()
        found.append(time.perf_counter() - began)
        request.cancelled = True
    return sorted(found[1:])


def without_cache(size: Size, model: Decoder, tokens: int) -> float:
    """Seconds of a text of `tokens` new tokens when the plain model is called with the whole context for each: all of them, or by
    the trapezoids between nine lengths."""
    row = torch.tensor(prompts(size, 1, PROMPT + tokens))

    @torch.inference_mode()
    def step(length: int) -> float:
        began = time.perf_counter()
        int(model(row[:, :length])[0, -1].argmax())
        return time.perf_counter() - began

    step(PROMPT)
    if size.whole:
        return sum(step(PROMPT + n) for n in range(tokens))
    places = [PROMPT + tokens * n // 8 for n in range(9)]
    times = [min(step(length) for _ in range(2)) for length in places]
    return sum((a + b) / 2 for a, b in pairwise(times)) * tokens / 8


class Peer:
    """`transformers`' `generate` of the same weights, in a process of its own that waits while ours are timed."""

    def __init__(self, model: Decoder) -> None:
        """Raises `NotMeasured` where it cannot be installed, or does not load the model."""
        python = environment("transformers", TRANSFORMERS)
        request = {"threads": torch.get_num_threads(), "sampling": SAMPLING}
        env = {
            **os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore",
            "BORROWED": str(Path(torch.__file__).parents[1]),
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            out = Folder(folder)
            made = architecture(model.config, model.embedding.num_embeddings, CONTEXT)
            write_weights(out, made, model.state_dict(), torch.float32, 10**9)
            write_json(
                out / "config.json",
                {"architectures": [made.name], **made.config, "eos_token_id": 0, "bos_token_id": 0},
            )
            command = [str(python), str(SCRIPTS / "transformers_generate.py"), folder, json.dumps(request)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=env,
            )
            self.version = str(self._answer())

    def seconds(self, batch: int, length: int, tokens: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([batch, length, tokens])}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            reason = self._process.communicate()[1].strip().splitlines() or ["no reason"]
            raise NotMeasured(f"its script failed: {reason[-1][:200]}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


def speculation(size: Size, runner: Runner) -> tuple[float, float, float]:
    """Times the speed without a draft, with proposals by prompt look-up: on a text that repeats itself, with the share of steps
    that it takes, and on one that never does."""
    found = []
    for sampling, text in (
        ({"temperature": 0.0}, [7, 8, 9, 10] * 16),
        ({"temperature": 1.0, "top_k": 0, "top_p": 1.0}, None),
    ):
        texts = [text] if text else prompts(size, 1, PROMPT)
        seconds, steps = [], []
        for draft in (None, PromptLookup()):
            engine = Engine(runner, 1, draft=draft)
            seconds.append(spent(lambda e=engine, s=sampling, t=texts: text_of(e, t, size.tokens, **s)))  # type: ignore[misc]
            steps.append(text_of(engine, texts, size.tokens, **sampling))
        found.append((seconds[0] / seconds[1], steps[1] / steps[0]))
    return found[0][0], found[0][1], found[1][0]


class Memory:
    """What reading costs: a product of a large matrix with a vector, which does nothing else."""

    def __init__(self) -> None:
        self._matrix, self._vector = torch.ones(READ // (4 * 4096), 4096), torch.ones(4096)

    def speed(self) -> float:
        """Bytes a second."""
        began = time.perf_counter()
        torch.mv(self._matrix, self._vector)
        return self._matrix.nbytes / (time.perf_counter() - began)


def read_for_a_token(model: Decoder) -> int:
    """Bytes of the weights that a token takes part in; of embeddings that are not the head it is a row."""
    rows = {"embedding.weight"} if not model.config.tie_embeddings else set()
    return sum(p.nbytes for name, p in model.named_parameters() if name not in rows)


def versus(size: Size, runner: Runner, peer: Peer | None, weights: int) -> None:
    """The table of decoding at several batch sizes. Rounds of both alternate, since the speed of memory is shared with whatever
    else the machine does; the median of the ratios counts. Below it, for weights beyond caches, the limit at batch 1."""
    memory, given = Memory(), list[float]()
    limit: list[tuple[str, float]] = []
    print(
        f"| batch | CorpusMill | transformers{f' {peer.version}' if peer else ''} | times | CorpusMill, times batch 1 |"
    )
    print("|---|--:|--:|--:|--:|")
    alone = 0.0
    for batch in (1, 4, 16):
        case = (batch, PROMPT, size.tokens)
        both = []
        for _ in range(ROUNDS + 1):
            both.append((once(size, runner, *case), peer.seconds(*case) if peer else 0.0))
            given += [memory.speed()] if batch == 1 else []
        both = both[1:]
        rate = batch * size.tokens / median(ours for ours, _ in both)
        alone = alone or rate
        other = "– | –"
        if peer:
            rates = [theirs / ours for ours, theirs in both]
            slower = batch * size.tokens / median(theirs for _, theirs in both)
            limit += [("transformers", slower)] if batch == 1 else []
            other = f"{slower:,.0f} | {median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})"
        limit += [("CorpusMill", rate)] if batch == 1 else []
        print(f"| {batch} | {rate:,.0f} | {other} | {rate / alone:.1f} |")
    if weights >= LARGE:
        most = median(given[1:]) / weights
        reached = ", ".join(f"{name} {rate / most:.0%}" for name, rate in reversed(limit))
        print(
            f"\nThe limit at batch 1: every token reads the weights, {weights / 1e6:.0f} MB, and memory gives"
            f" {most * weights / 1e9:.1f} GB/s (a matrix times a vector, between the rounds): {most:,.0f} tokens/s. Of these: {reached}."
        )


def section(size: Size) -> None:
    model = Decoder(ModelConfig.model_validate(size.model), size.vocabulary, 0).eval()
    runner = Runner(model, size.vocabulary, 0, CONTEXT)
    runner.eos_id = -1  # no text ends before its time; prompts of one length need no padding
    print(f"### {size.name}: {model.parameter_count / 1e6:.1f} M parameters\n")
    print(
        f"Prompts of {PROMPT} tokens, {size.tokens} new ones, fp32, tokens/s of all texts together, prompts read.\n"
    )
    reason, peer = "", None
    try:
        peer = Peer(model)
    except NotMeasured as error:
        reason = str(error)
    try:
        versus(size, runner, peer, read_for_a_token(model))
    finally:
        if peer:
            peer.close()
    if reason:
        print(f"\ntransformers is not measured: {reason}.")
    uncached = without_cache(size, model, LONG)
    cached = decoding(size, runner, 1, PROMPT, LONG)
    how = "" if size.whole else " (computed from its time at nine lengths)"
    print(
        f"\n- {LONG} new tokens at batch 1: {cached:.2f} s; without a cache {uncached:.2f} s{how}: {uncached / cached:.1f} times."
    )
    for batch in (1, 16):
        seconds = decoding(size, runner, batch, PREFILL, 1)
        print(f"- Prefill, {batch} x {PREFILL} tokens: {batch * PREFILL / seconds:,.0f} tokens/s.")
    for others in (0, 15):
        waits = first_token(size, runner, others)
        p50, p95 = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
        beside = f"beside {others} texts" if others else "alone"
        print(
            f"- Time to the first token of a prompt of 128, {beside}: p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms."
        )
    faster, share, slower = speculation(size, runner)
    print(
        f"- Speculation by prompt look-up: {faster:.2f} times the speed on a text that repeats itself ({share:.0%} of the steps),"
        f" {slower:.2f} times on one that never does."
    )
    weights = sum(parameter.nbytes for parameter in model.parameters())
    print(
        f"- Memory: {weights / 1e6:.0f} MB of weights, {runner.cache(1).nbytes / 1e6:.1f} MB of cache for a row of {CONTEXT} positions.\n"
    )


def main() -> None:
    torch.set_grad_enabled(False)
    print(
        f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; random weights, on which time does not depend.\n"
    )
    for size in SIZES:
        print(f"  generate: {size.name}", file=sys.stderr, flush=True)
        section(size)
    for size in (SIZES[1], WIDE):
        print(f"  generate: weights in few bits, {size.name}", file=sys.stderr, flush=True)
        low_bits.generation(
            size, lambda runner, batch, size=size: once(size, runner, batch, PROMPT, size.tokens), ROUNDS
        )
    low_bits.products(spent)


if __name__ == "__main__":
    main()
