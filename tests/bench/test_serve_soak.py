"""The soak of `serve`: how it judges memory; and for some seconds: it finds nothing, and says what it did."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

from bench._soak_memory import ENOUGH, Judged, Sample, table
from tests.conftest import ROOT


def test_the_server_stands_some_seconds_of_it() -> None:
    command = [sys.executable, "-m", "bench", "serve_soak", "--minutes", "0.06", "--clients", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 clients for 0.1 minutes" in done.stdout and "| stream and leave | " in done.stdout
    assert "- The server's last line: stopped: " in done.stdout
    assert "| 100 % | " in done.stdout and "**Passed: memory is flat, and nothing is stuck.**" in done.stdout


def samples(memory: Callable[[int], float], count: int = 100, each: int = 50) -> list[Sample]:
    """`memory`: bytes by requests, to which the noise of an allocator is added: up to 1 MiB, at random."""
    noise = random.Random(0)
    return [
        Sample(n / count, int(memory(n * each) + noise.randrange(2**20)), n * each, 0, 0)
        for n in range(count + 1)
    ]


def test_a_leak_is_distinguished_from_a_warm_up_and_from_noise() -> None:
    start, most = 250 * 2**20, 5000
    assert not Judged(samples(lambda requests: start)).problems()
    filled = samples(lambda requests: start + 20 * 2**20 * min(requests / (0.15 * most), 1))
    assert not Judged(filled).problems() and Judged(filled).requests == 4000
    peak = samples(lambda requests: start + 30 * 2**20 * (0.5 * most < requests < 0.7 * most))
    assert not Judged(peak).problems()
    (problem,) = Judged(samples(lambda requests: start + 600 * requests)).problems()
    assert problem.startswith("memory grew by ") and problem.endswith(
        " KiB per 1,000 requests, more than 256 KiB"
    )
    few = Judged(samples(lambda requests: start + 2000 * requests, each=9))
    assert few.requests < ENOUGH and not few.problems()
    assert len(Judged(samples(lambda requests: start + 8000 * requests)).problems()) == 2


def test_the_table_has_eleven_times() -> None:
    lines = table([Sample(n / 40, n << 20, 1000 * n, n, 2 * n) for n in range(41)]).splitlines()
    assert len(lines) == 13 and lines[2] == "| 0 % | 0.0 | 0 | 0 | 0 |"
    assert lines[4] == "| 20 % | 8.0 | 8,000 | 8 | 16 |" and lines[-1].startswith("| 100 % | 40.0 |")
