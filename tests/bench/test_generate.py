"""The bench of generation, on a model of no size: it measures what it says, and a peer that cannot be had is named."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from bench import _low_bits, generate
from bench.peers import NotMeasured


@pytest.mark.parametrize("whole", [True, False])
def test_a_section(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], whole: bool) -> None:
    def offline(*_: Any) -> None:
        raise NotMeasured("the package index cannot be reached")

    for name, value in {
        "LONG": 16,
        "ROUNDS": 1,
        "CONTEXT": 320,
        "environment": offline,
        "LARGE": 0,
        "READ": 1 << 20,
    }.items():
        monkeypatch.setattr(generate, name, value)
    torch.set_num_threads(1)
    generate.section(
        generate.Size("tiny", {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2}, 100, 8, whole)
    )
    out = capsys.readouterr().out
    rows = re.findall(r"^\| (\d+) \| ([\d,]+) \| – \| – \| ([\d.]+) \|$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "4", "16"] and rows[0][2] == "1.0"
    assert re.search(
        r"reads the weights, 0 MB, and memory gives [\d.]+ GB/s .*: [\d,]+ tokens/s. Of these: CorpusMill \d+%\.",
        out,
    )
    assert "transformers is not measured: the package index cannot be reached." in out
    assert re.search(r"- 16 new tokens at batch 1: [\d.]+ s; without a cache [\d.]+ s", out)
    assert ("computed from its time at nine lengths" in out) is not whole
    assert re.search(r"beside 15 texts: p50 [\d.]+ ms, p95 [\d.]+ ms", out)
    assert re.search(r"on a text that repeats itself \(\d+% of the steps\)", out)


def test_tables_of_few_bits(capsys: pytest.CaptureFixture[str]) -> None:
    size = generate.Size("tiny", {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2}, 100, 4, False)
    _low_bits.generation(size, lambda runner, batch: generate.once(size, runner, batch, 8, size.tokens), 1)
    _low_bits.products(generate.spent, 64)
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", capsys.readouterr().out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "4", "16"] * 2
    assert [len(row[1].split("|")) for row in rows] == [5] * 6
    assert all(float(cell.split()[0].replace(",", "")) > 0 for row in rows for cell in row[1].split("|"))
