"""What `GET /metrics` shows: counters and histograms in the text format of Prometheus. No text, and no name of a client."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
PREFIX = "corpusmill_"


class Histogram:
    """Counts of seconds by upper bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{PREFIX}{name}_bucket{{le="{bound}"}} {total}'
        yield f"{PREFIX}{name}_sum {self.sum:.6f}"
        yield f"{PREFIX}{name}_count {total}"


class Metrics:
    """Of one server. Its threads write and read under `lock`.

    Always: texts accepted = texts ended, over all reasons, + active + waiting.
    """

    def __init__(self, rows: int, queue: int) -> None:
        self.lock = threading.Lock()
        self.rows, self.queue = rows, queue
        self.accepted = self.active = self.waiting = 0
        self.ended: Counter[str] = Counter()  # by reason
        self.responses: Counter[tuple[str, int]] = Counter()  # by path and status; 499: the client left
        self.prompt_tokens = self.generated_tokens = 0
        self.first_token, self.text = Histogram(), Histogram()

    def render(self) -> str:
        with self.lock:
            return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        single = (
            ("rows", "gauge", "texts that can be generated at a time", self.rows),
            ("queue_limit", "gauge", "texts that may wait for a row", self.queue),
            ("texts_active", "gauge", "texts being generated", self.active),
            ("texts_waiting", "gauge", "texts that wait for a row", self.waiting),
            ("texts_accepted_total", "counter", "texts asked for and not refused", self.accepted),
            ("prompt_tokens_total", "counter", "tokens of the prompts of texts that have ended", self.prompt_tokens),
            ("generated_tokens_total", "counter", "tokens generated", self.generated_tokens),
        )  # fmt: skip
        for name, kind, about, value in single:
            yield from self._head(name, kind, about)
            yield f"{PREFIX}{name} {value}"
        yield from self._head("texts_ended_total", "counter", "texts that have ended, by reason")
        for reason, count in sorted(self.ended.items()):
            yield f'{PREFIX}texts_ended_total{{reason="{reason}"}} {count}'
        yield from self._head("http_responses_total", "counter", "responses by path and status")
        for (path, status), count in sorted(self.responses.items()):
            yield f'{PREFIX}http_responses_total{{path="{path}",status="{status}"}} {count}'
        for name, about, histogram in (
            ("time_to_first_token_seconds", "from acceptance to the first token", self.first_token),
            ("text_seconds", "from acceptance to the end of a text", self.text),
        ):
            yield from self._head(name, "histogram", about)
            yield from histogram.lines(name)

    @staticmethod
    def _head(name: str, kind: str, about: str) -> Iterator[str]:
        yield f"# HELP {PREFIX}{name} {about}"
        yield f"# TYPE {PREFIX}{name} {kind}"
