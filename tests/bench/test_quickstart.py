"""The tables of the quick start, from an evaluation; how far losses are from those of another kind of processor."""

from __future__ import annotations

from typing import Any

from bench.quickstart import OTHERS, capability, lines, spread


def figures(bits: float) -> dict[str, float]:
    return {"loss": 6.3, "perplexity": 545.0, "bits_per_byte": bits}


def interval(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.125, "high": value + 0.125}


def row(own: bool) -> dict[str, Any]:
    ngrams = {"trained_on": {"bigram": figures(2.1), "trigram": figures(2.2)}}
    return {
        "tokens": 100, "bytes": 300, **figures(2.4), "unigram": figures(2.7),
        "unigram_source": figures(2.6) if own else None, "ngrams": ngrams, "interval": interval(2.4),
    }  # fmt: skip


def test_ngram_models_stand_beside_the_model() -> None:
    evaluation = {
        "ngrams": {"trained_on": {"tokens": 5, "of": 5}, "all": {"tokens": 0, "of": 0, "missing": "no data"}},
        "sources": {"wiki": row(True), "planted": row(False)},
        "all_sources": row(False),
        "macro": {"sources": 2, "interval": interval(2.5)},
    }
    times = dict.fromkeys(("setup_s", "setup_mb", "first_s", "run_mb", "second_s"), 1.0)
    found = lines({**times, "evaluation": evaluation})
    assert "| wiki | 6.30 | 6.30 | 6.30 |" in found and "| planted | 6.30 | 6.30 |  |" in found
    assert found[-6:] == [
        "| source | model | 95 % | unigram, all | bigram, seen | trigram, seen |",
        "|---|---:|---:|---:|---:|---:|",
        "| wiki | 2.400 | 2.275 to 2.525 | 2.700 | 2.100 | 2.200 |",
        "| planted | 2.400 | 2.275 to 2.525 | 2.700 | 2.100 | 2.200 |",
        "| all sources | 2.400 | 2.275 to 2.525 | 2.700 | 2.100 | 2.200 |",
        "| mean of sources | 2.500 | 2.375 to 2.625 |  |  |  |",
    ]


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
