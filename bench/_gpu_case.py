"""One case of bench/train_gpu.py, in a process of its own: a model, a loop, a precision; speed and peak memory.

`python -m bench._gpu_case '{"model": "124m", "loop": "train"}'` prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench import _bare
from bench._gpu_models import MODELS, Case, NotHere, flops_per_token


def run(case: Case) -> dict[str, Any]:
    """The case's row. Raises `NotHere` if a part is missing, `torch.OutOfMemoryError` if no micro-batch fits."""
    import torch

    from bench._gpu_loops import LOOPS
    from corpusmill.train.model.flops import mfu

    size = MODELS[case.model]
    torch.manual_seed(0)
    _peak(case.device)
    with _attention(case.attention):
        make = LOOPS[case.loop]
        tried = {} if case.micro else search(case, make)
        micro = case.micro or max(tried, key=lambda at: tried[at])
        loop = fitting(case, make, micro)
        micro = loop.micro
        _peak(case.device)
        loop.waited, seconds, began = 0.0, list[float](), time.perf_counter()
        while len(seconds) < 3 or time.perf_counter() - began < case.seconds:
            start = time.perf_counter()
            loop.step()
            _wait(case.device)
            seconds.append(time.perf_counter() - start)
        peak = _peak(case.device)
        kernels = profiled(loop, case.device) if case.profile else []
    speed = size.rows * size.length / median(seconds)
    flops = flops_per_token(size)
    name = torch.cuda.get_device_name() if case.device == "cuda" else "cpu"
    loop.close()
    return {
        **case._asdict(), "micro": micro, "tried": tried, "parameters": loop.parameters, "rows": size.rows,
        "length": size.length, "steps": len(seconds), "tokens_per_second": speed,
        "slowest": size.rows * size.length / max(seconds), "flops_per_token": flops,
        "mfu": mfu(speed, flops, torch.device(case.device)), "peak_bytes": peak,
        "loss": loop.loss(), "loader_stall": loop.waited / sum(seconds),
        "kernels": kernels, "machine": name, "torch": torch.__version__,
    }  # fmt: skip


def profiled(loop: Any, device: str, most: int = 20) -> list[tuple[str, float, float]]:
    """(kernel, share of a step's time, milliseconds) of those that take most; first the device's idle share."""
    from torch.profiler import ProfilerActivity, profile

    kind = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[kind]) as seen:
        began = time.perf_counter()
        loop.step()
        _wait(device)
        whole = 1e3 * (time.perf_counter() - began)
    by = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    found = sorted(
        ((getattr(event, by) / 1e3, event.key[:90]) for event in seen.key_averages()), reverse=True
    )
    idle = whole - sum(spent for spent, _ in found)
    return [(name, spent / whole, spent) for spent, name in [(idle, "(idle)"), *found[:most]]]


def fitting(case: Case, make: Callable[..., Any], micro: int) -> Any:
    """A loop that has done a step, of this micro-batch or the half, quarter, ... of it."""
    import torch

    while True:
        loop = None
        try:
            loop = make(case, micro, MODELS[case.model].rows)
            loop.step()
            _wait(case.device)
            return loop
        except torch.OutOfMemoryError:
            if micro == 1:
                raise
        del loop  # out of the handler, whose traceback holds tensors too
        micro //= 2
        _clear()


def search(case: Case, make: Callable[..., Any]) -> dict[int, float]:
    """Micro-batch -> tokens/s of two steps of two of them, until it no longer fits or gains less than 1 %."""
    import torch

    size, found = MODELS[case.model], dict[int, float]()
    for micro in size.micro:
        loop = None
        try:
            loop = make(case, micro, 2 * micro)
            loop.step()
            _wait(case.device)
            began = time.perf_counter()
            loop.step()
            loop.step()
            _wait(case.device)
            found[micro] = 4 * micro * size.length / (time.perf_counter() - began)
            loop.close()
        except torch.OutOfMemoryError:
            found[micro] = 0.0  # if it is the first, the caller halves it
        del loop
        _clear()
        if found[micro] < 1.01 * max([0.0, *(found[at] for at in found if at < micro)]):
            break
    return found


def _attention(name: str) -> Any:
    """`cudnn`: that kernel before the others, where `scaled_dot_product_attention` may choose."""
    if name == "default":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = [
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]
    return sdpa_kernel(order, set_priority=True)


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _peak(device: str) -> int:
    """Bytes allocated at most since the last call."""
    import torch

    if device != "cuda":
        return 0
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak


def _clear() -> None:
    import torch

    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> None:
    """A row, or why there is none, as the last line."""
    import torch

    message = _bare.stand_in()
    if message:
        print(message, file=sys.stderr)
    try:
        row = run(Case(**json.loads(sys.argv[1])))
    except NotHere as reason:
        row = {"missing": str(reason)}
    except torch.OutOfMemoryError:
        row = {"missing": "out of memory with every micro-batch"}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
