"""The table of the README: the losses, and how far those of another kind of processor are."""

from __future__ import annotations

from typing import Any

from bench.quickstart import OTHERS, capability, lines


def evaluation(**losses: float) -> dict[str, Any]:
    return {
        "sources": {
            name: {
                "loss": loss,
                "unigram": {"loss": 7.0},
                **({} if name == "few" else {"unigram_source": {"loss": 6.5}}),
            }
            for name, loss in losses.items()
        }
    }


def test_the_table_shows_what_other_instructions_give() -> None:
    times = {"setup_s": 60.0, "setup_mb": 1810.0, "first_s": 190.0, "run_mb": 132.0, "second_s": 9.0}
    found = {**times, "here": "AVX512", "other": "avx2", "evaluation": evaluation(wiki=6.5, few=6.0)}
    table = lines({**found, "otherwise": evaluation(wiki=6.46, few=6.11)})
    assert (
        table[-6]
        == "| source | model | model, with avx2 kernels | unigram model | unigram model of that source |"
    )
    assert table[-4:-3] == ["| wiki | 6.50 | 6.46 | 7.00 | 6.50 |"]
    assert "ends up to 0.11 nats away" in table[-1]


def test_the_table_without_others() -> None:
    times = {"setup_s": 60.0, "setup_mb": 1810.0, "first_s": 190.0, "run_mb": 132.0, "second_s": 9.0}
    table = lines({**times, "here": "DEFAULT", "other": None, "evaluation": evaluation(wiki=6.5, few=6.0)})
    assert table[-2:] == ["| wiki | 6.50 | 7.00 | 6.50 |", "| few | 6.00 | 7.00 |  |"]
    assert len({line.count("|") for line in table[-4:]}) == 1


def test_the_instructions_of_this_processor_have_a_name() -> None:
    assert capability() in {*OTHERS, "DEFAULT"}
