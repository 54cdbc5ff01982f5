"""What the README says of the losses on another kind of processor."""

from __future__ import annotations

from typing import Any

from bench.quickstart import OTHERS, capability, spread


def evaluation(**losses: float) -> dict[str, Any]:
    return {"sources": {name: {"loss": loss} for name, loss in losses.items()}}


def test_the_largest_difference_is_named() -> None:
    found = {"here": "AVX512", "other": "avx2", "evaluation": evaluation(wiki=6.5, code=6.0)}
    [_, text] = spread({**found, "otherwise": evaluation(wiki=6.46, code=6.11)})
    assert "use AVX512 instructions here, and the same run with AVX2 ones ends up to 0.11 nats away" in text
    assert "(wiki 6.46, code 6.11)" in text
    assert spread({**found, "other": None}) == []


def test_the_instructions_of_this_processor_are_known() -> None:
    assert capability() in {*OTHERS, "DEFAULT"}
