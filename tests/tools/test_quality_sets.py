"""The sets of the quality model: how pages are cut in two, documents cut out of texts, and families left out."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.pipeline.filter.classifiers.labelled import Labelled
from corpusmill.pipeline.filter.quality_signals.inputs import QUALITY
from tests.pipeline.filter.helpers import PROSE
from tools import train_quality
from tools.quality_pages import beside, lines_of, parts_of, silver
from tools.quality_sets import LONGEST, SHORTEST, Part, cut

ARTICLE = [
    f"The {n}th sentence of the article is long enough to be a paragraph of the page." for n in range(8)
]
MENU = [f"Menu entry number {n}, with a few words more" for n in range(8)]


def test_lines_between_marks_of_one_kind_are_of_that_kind() -> None:
    lines = [*MENU[:5], "Maybe", *ARTICLE, "Unclear", *MENU[5:]]
    found = {label: text for text, label in beside(lines, [ARTICLE[0], ARTICLE[7]], [MENU[4], MENU[5]])}
    assert found == {True: "\n".join(ARTICLE), False: "\n".join(MENU)}
    assert beside(lines, [ARTICLE[0]], [MENU[4]]) == []  # a single line is too little
    assert beside(lines, ["not there"], [MENU[4]]) == []


def test_a_page_is_split_by_its_marks_or_by_an_extractor() -> None:
    nav = "".join(f"<li>{one}</li>" for one in MENU)
    page = f"<html><body><div class='related'><ul>{nav}</ul></div><p>{'</p><p>'.join(ARTICLE)}</p></body></html>".encode()
    assert parts_of(page, wrapped=False) == (ARTICLE, MENU)
    html = f"<html><body><nav><ul>{nav}</ul></nav><main><p>{'</p><p>'.join(ARTICLE * 3)}</p></main></body></html>".encode()
    main, rest = silver(html)
    assert set(ARTICLE) <= set(main) and set(MENU) <= set(rest) and lines_of(html)[0] == MENU[0]


def test_documents_are_cut_alike_every_time_and_inside_the_bounds() -> None:
    texts = [[f"{n} {line}" for line in ARTICLE * 200] for n in range(5)]
    found = cut(texts, "name", 18)
    assert found == cut(texts, "name", 18) != cut(texts, "other", 18)
    assert len(set(found)) == len(found) == 18 and all(SHORTEST <= len(text) <= LONGEST for text in found)
    assert sum(len(text) > 40_000 for text in found) == 5
    assert cut([["short"]], "name") == []


def test_a_family_is_judged_by_a_model_of_the_others() -> None:
    good = [f"{PROSE} {n}" for n in range(20)]
    bad = ["\n".join([*MENU[: n % 5 + 3], str(n)]) for n in range(20)]
    sets = [
        Part(family, Labelled(name, texts, [label] * 20), known=family == "b")
        for family in "abc"
        for name, texts, label in (("good", good, True), ("bad", bad, False))
    ]
    data = train_quality.measured(sets)
    assert np.isnan(data.columns[2][QUALITY]).all() and not np.isnan(data.prose[2]).any()
    model, own = train_quality.without(data, "c")
    odds = train_quality.left_out(data)
    assert own == [4, 5] and odds[4].tolist() == model.log_odds(model.contributions(data.columns[4])).tolist()
    assert odds[4].min() > odds[5].max()
    _, truth, weights = train_quality.stacked(data, range(6))
    assert [weights[truth].sum(), weights[~truth].sum()] == pytest.approx([0.5, 0.5])
    card = "\n".join(train_quality.figures(data, odds))
    assert "| **c** | 40 | 20 | 1.000 |" in card and "Expected calibration error" in card
