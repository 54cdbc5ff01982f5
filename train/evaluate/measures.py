"""What a metric says: whether more of it is better, whether an item is right or wrong by it, and whether a guess has a known value."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """`better`: 1 where more is better, -1 where less is, 0 where neither is. `right`: an item is right (1) or wrong (0) by it.
    `share`: it is between 0 and 1. `chance`: a task's chance level is its value for a guess."""

    better: int = 1
    right: bool = False
    share: bool = False
    chance: bool = False


ACCURACY = Measure(right=True, share=True, chance=True)
EQUAL = Measure(right=True, share=True)
GRADED = Measure(share=True)
COST = Measure(better=-1)
MEASURES: dict[str, Measure] = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info"), ACCURACY),
    **dict.fromkeys(("exact_match", "squad_exact", "number_strict", "number_flexible"), EQUAL),
    **dict.fromkeys(("squad_f1", "f1", "f1_macro", "precision", "recall"), GRADED),
    **dict.fromkeys(("rouge", "rouge-stemmed", "meteor"), GRADED),
    **dict.fromkeys(("mcc", "gold_logprob_per_byte", "loglikelihood"), Measure()),
    **dict.fromkeys(("bleu", "chrf", "chrf++"), Measure()),  # 0 to 100
    **dict.fromkeys(
        ("brier_score", "perplexity", "bits_per_byte", "byte_perplexity", "word_perplexity"), COST
    ),
    "likelihood_diff": Measure(better=0),
    "pct_stereotype": Measure(better=0, share=True, chance=True),
}


def measure(metric: str) -> Measure:
    """Of a metric by its name, which may have a filter's behind it (`exact_match,strict-match`); `rouge` has several figures."""
    name = metric.partition(",")[0]
    return MEASURES.get("rouge" if name.startswith("rouge") else name, Measure())
