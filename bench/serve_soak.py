"""`corpusmill serve` under clients that stream, leave, break off, read slowly and send rubbish: memory, what is stuck, what adds up.

`python -m bench serve_soak --minutes 30 [--clients 24] [--seed 0]`. The run fails unless memory stays flat after the warm-up
(`_soak_memory`), every text ends, rows, connections and files are free again, a fresh request gets the text that it got at the
start, the counters agree with each other and with what the clients saw, and the server ends by SIGTERM with exit code 0 and
without a line about a mistake of its own.
"""

from __future__ import annotations

import argparse
import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from bench._soak_clients import PATHS, Clients
from bench._soak_memory import Judged, Sample, own_memory, table


class Figures:
    """The server's metrics at one time."""

    def __init__(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/metrics")
        self.lines = connection.getresponse().read().decode().splitlines()
        connection.close()

    def of(self, name: str, labels: str = "") -> float:
        """The sum of a metric over its labels, or of those alone that have `labels`."""
        wanted = re.compile(rf"corpusmill_{name}(\{{.*\}})? ")
        return sum(float(one.rpartition(" ")[2]) for one in self.lines if wanted.match(one) and labels in one)


def wait_for(true: Callable[[], bool], seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while not true():
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench serve_soak", description=__doc__)
    # Caches fill over some 5,000 requests, which a slow machine answers in more than a minute.
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    command = [sys.executable, "-m", "bench._soak_server"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    try:
        problems = soak(server, options.minutes * 60, options.clients, options.seed)
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    print(
        f"\n**Failed: {'; '.join(problems)}.**"
        if problems
        else "\n**Passed: memory is flat, and nothing is stuck.**"
    )
    if problems:
        sys.exit(1)


def soak(server: subprocess.Popen[str], seconds: float, count: int, seed: int) -> list[str]:
    """Trouble the server and print what happened; what is wrong with it."""
    assert server.stdout is not None
    port = int(server.stdout.readline().rpartition(":")[2])
    process, clients = psutil.Process(server.pid), Clients(port)
    wait_for(lambda: _answers(port), 60)
    files = process.num_fds()
    clients.fill_word_caches()
    wanted = clients.fresh()
    start = time.monotonic()
    until = start + seconds
    threads = [threading.Thread(target=clients.work, args=(seed * 1000 + n, until)) for n in range(count)]
    for thread in threads:
        thread.start()
    samples, most = list[Sample](), 0.0
    while server.poll() is None and (not samples or samples[-1].share < 1):
        found = Figures(port)
        most = max(most, found.of("texts_active") + found.of("texts_waiting"))
        share = min((time.monotonic() - start) / seconds, 1.0)
        cancelled = int(found.of("texts_ended_total", '"cancelled"'))
        samples.append(Sample(share, own_memory(server.pid), clients.requests, cancelled, clients.broken))
        time.sleep(min(1.0, seconds / 100))
    for thread in threads:
        thread.join(180)
    hanging = sum(thread.is_alive() for thread in threads)
    problems = [f"{hanging} clients hang"] if hanging else []
    if server.poll() is not None:
        return [*problems, f"the server ended with exit code {server.poll()}"]
    problems += _stuck(process, port, files)
    if clients.fresh() != wanted:
        problems.append("a fresh request does not get the text that it got at the start")
    found = Figures(port)
    problems += _miscounted(found, clients)
    judged = Judged(samples)
    problems += judged.problems()
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=60)
    if server.returncode or "Traceback" in errors or " at /" in errors:
        problems.append(f"the server ended with exit code {server.returncode}: {errors.strip()[-300:]}")
    print(
        f"{count} clients for {seconds / 60:.1f} minutes; {clients.requests:,} requests.\n\n{table(samples)}\n\n- {judged.line()}"
    )
    _report(clients, found, most, errors)
    return problems


def _answers(port: int) -> bool:
    with suppress(OSError):
        return bool(Figures(port).lines)
    return False


def _stuck(process: psutil.Process, port: int, files: int) -> list[str]:
    """What is not free again within a minute."""
    problems = []

    def connections() -> int:
        return sum(one.status != psutil.CONN_LISTEN for one in process.net_connections("tcp"))

    if not wait_for(lambda: Figures(port).of("texts_active") + Figures(port).of("texts_waiting") == 0, 60):
        problems.append("texts go on for which nobody waits")
    if not wait_for(lambda: connections() == 0, 60):
        problems.append(f"{connections()} connections are open")
    if not wait_for(lambda: process.num_fds() <= files, 60):
        problems.append(f"{process.num_fds() - files} files are open that were not")
    return problems


def _miscounted(found: Figures, clients: Clients) -> list[str]:
    """Where the server's figures do not agree with each other, or with what the clients saw."""
    problems = []
    accepted, ended = found.of("texts_accepted_total"), found.of("texts_ended_total")
    if accepted != ended or ended != found.of("text_seconds_count"):
        problems.append(f"{accepted:.0f} texts were accepted and {ended:.0f} ended")
    for (path, status), number in clients.answered.items():
        if path in PATHS and found.of("http_responses_total", f'path="{path}",status="{status}"') < number:
            problems.append(f"{path}: clients saw {number} answers {status}, the server counts fewer")
    if clients.answered[PATHS[0], 500] or found.of("http_responses_total", 'status="500"'):
        problems.append("the server made mistakes")
    return problems


def _report(clients: Clients, found: Figures, most: float, errors: str) -> None:
    ends = {
        reason: found.of("texts_ended_total", f'"{reason}"')
        for reason in ("stop", "length", "context", "cancelled", "failed")
    }
    print(f"- Texts: {found.of('texts_accepted_total'):,.0f} accepted; ended: "
          + ", ".join(f"{n:,.0f} {reason}" for reason, n in ends.items() if n)
          + f"; {found.of('generated_tokens_total'):,.0f} tokens; at most {most:.0f} at a time seen.")  # fmt: skip
    waited = found.of("time_to_first_token_seconds_sum") / max(
        found.of("time_to_first_token_seconds_count"), 1
    )
    print(f"- Mean time to the first token, with the wait in the queue: {waited * 1e3:.0f} ms.")
    print(f"- The server's last line: {(errors.strip().splitlines() or ['none'])[-1]}\n")
    print("| what a client does | results |\n|---|---|")
    for name in dict.fromkeys(action.__name__.replace("_", " ") for action in clients.actions()):
        results = sorted((result, n) for (action, result), n in clients.seen.items() if action == name)
        print(f"| {name} | {', '.join(f'{result}: {n:,}' for result, n in results) or '–'} |")


if __name__ == "__main__":
    main()
