"""How shards are put together from many partitions: a few requests a partition, not one a document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corpusmill.pipeline.engine.planning.constants import measured
from corpusmill.pipeline.engine.planning.forecast import Flow, Shape
from corpusmill.pipeline.shard import segments
from corpusmill.pipeline.shard.segments import WINDOW, window_bytes
from corpusmill.pipeline.shard.slices import expected, touched
from corpusmill.schemas.shards import ShardParams

SHAPE = Shape(30e12, 30e12, 10_000, 10_000, 10_000)
FLOW = Flow(10e9, 30e12, SHAPE, 10e9, 1, 500, True, 0.0, 0.0)


def test_a_window_grows_with_the_files() -> None:
    assert [window_bytes(files) // WINDOW for files in (1, 500, 1023, 1024, 10_000, 10**6)] == [
        1,
        1,
        1,
        2,
        19,
        64,
    ]


def test_ten_billion_documents_take_fewer_than_a_billion_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 partitions and 4,000 tars; with windows of 16 MiB each document would be a request."""
    params = ShardParams(shard_mb=3500)
    works = {work.name: work for work in expected(params, 0.0, FLOW, measured()).works}
    assert 3_500 < works["write"].tasks < 4_500
    assert sum(work.gets + work.puts for work in works.values()) < 1e9
    monkeypatch.setattr(segments, "WIDEST", 1)
    narrow = {work.name: work for work in expected(params, 0.0, FLOW, measured()).works}
    assert narrow["write"].gets > 5e9


def test_slices_are_no_more_than_documents() -> None:
    assert touched(100, 1) == pytest.approx(1, rel=0.01)
    assert touched(100, 1e6) == pytest.approx(100)
    few = replace(FLOW, documents=1000, text_bytes=3e6)
    write = expected(ShardParams(), 0.0, few, measured()).works[1]
    assert write.driver_bytes < 1e6
