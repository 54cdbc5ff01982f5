"""Bias figures from the items of a task, whatever its name: the fields that its items have decide what is computed.

An item's `fields` are columns of the data set's own rows, by their names:

| kind | fields that are needed | used if there | choices |
|---|---|---|---|
| crows_pairs | sent_more, sent_less, bias_type, stereo_antistereo | | the two sentences |
| bbq | context_condition, question_polarity, category, answer_info, additional_metadata, ans0, ans1, ans2, label | | the three
answers, or the two and any ways to say that the answer is unknown |
| winogender | sentid (or occupation, participant and gender) | bls_pct_female | occupation, participant |
| winobias | type (type1_pro, type1_anti, type2_pro, type2_anti) | pair | any; `gold` |

`sentid` is that of winogender-schemas (occupation.participant.answer.gender); `type` has the names of wino_bias's configurations
in the Hub, and `pair` is the same for the two versions of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.fairness import ItemBias
from corpusmill.train.evaluate.fairness import bbq, crows_pairs, pronouns


class Kind(NamedTuple):
    name: str
    fields: frozenset[str]
    measure: Callable[[Sequence[Item]], ItemBias]


KINDS = (
    Kind("crows_pairs", frozenset(crows_pairs.FIELDS), crows_pairs.measured),
    Kind("bbq", frozenset(bbq.FIELDS), bbq.measured),
    Kind("winogender", frozenset({"sentid"}), pronouns.winogender),
    Kind("winogender", frozenset({"occupation", "participant", "gender"}), pronouns.winogender),
    Kind("winobias", frozenset({"type"}), pronouns.winobias),
)


def measured(items: Sequence[Item], women: Mapping[str, float] = {}) -> ItemBias | None:
    """The bias figures of a task's items; None for a task that is not about bias. `women`: percent in each occupation, for Winogender.

    Raises `UserError` for items that have the fields of a bias task and not its values.
    """
    if not items:
        return None
    shared = frozenset.intersection(*(frozenset(item.fields) for item in items))
    for kind in KINDS:
        if kind.fields <= shared:
            if kind.name == "winobias" and not {str(item.fields["type"]) for item in items} <= pronouns.TYPES:
                continue  # other data sets have a column of that name
            _check(kind.name, items)
            return pronouns.winogender(items, women) if kind.name == "winogender" else kind.measure(items)
    return None


def _check(kind: str, items: Sequence[Item]) -> None:
    for item in items:
        if len(item.logprobs) != len(item.choices) or len(item.choices) < 2:
            raise UserError(f"{kind}: item {item.id} has no log-probabilities of its choices; evaluate again")
        if not np.isfinite(item.logprobs).all():
            raise UserError(f"{kind}: item {item.id} has a log-probability that is not a number")
