"""Texts beside reference texts: BLEU, chrF, ROUGE and METEOR, by the libraries that published figures come from (extra `metrics`).

Each text has one or more references. `clusters` name the texts that are not independent, as in `corpusmill.train.evaluate.statistics`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate.resampling import bootstrap
from corpusmill.train.evaluate.statistics import estimate

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CORPUS = ("bleu", "chrf", "chrf++")  # of all texts together, no mean of theirs
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
Clusters = Sequence[Hashable] | None


class Scored(NamedTuple):
    """Figures by name, and in one line how they were computed."""

    figures: dict[str, Estimate]
    signature: str


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]], clusters: Clusters = None) -> Scored:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100, as sacrebleu computes it by default: its tokenizer 13a, case kept. The interval is
    from the bootstrap over texts."""
    return _of_corpus("bleu", texts, references, clusters)


def chrf(
    texts: Sequence[str], references: Sequence[Sequence[str]], clusters: Clusters = None, word_order: int = 0
) -> Scored:
    """Corpus chrF (Popović 2015), 0 to 100, as sacrebleu computes it; with `word_order` 2 it is chrF++. Interval likewise."""
    return _of_corpus("chrf" + "+" * word_order, texts, references, clusters)


def rouge(
    texts: Sequence[str],
    references: Sequence[Sequence[str]],
    clusters: Clusters = None,
    stemmer: bool = False,
) -> Scored:
    """Mean F-measure of ROUGE-1, -2, -L and -Lsum (Lin 2004), 0 to 1, by rouge_score, of the best reference. Its tokens are runs of
    a-z and 0-9 in lower case: texts in other scripts have none. Sentences of rougeLsum are lines. `stemmer`: Porter's."""
    _check(texts, references)
    scorer = _library("rouge_score.rouge_scorer").RougeScorer(list(ROUGE), use_stemmer=stemmer)
    found = [scorer.score_multi(list(wanted), text) for text, wanted in zip(texts, references, strict=True)]
    figures = {name: estimate([one[name].fmeasure for one in found], clusters) for name in ROUGE}
    return Scored(
        figures, f"rouge_score:{version('rouge-score')}|stemmer:{'porter' if stemmer else 'no'}|lsum:lines"
    )


def meteor(texts: Sequence[str], references: Sequence[Sequence[str]], clusters: Clusters = None) -> Scored:
    """Mean METEOR (Banerjee and Lavie 2005), 0 to 1, by nltk, of the best reference: words match exactly or by Porter's stem. Synonyms,
    which would need WordNet's data, are off. Tokens: the Treebank's, a text being one line."""
    _check(texts, references)
    score = _library("nltk.translate.meteor_score").meteor_score
    tokens = _library("nltk.tokenize").NLTKWordTokenizer().tokenize
    found = [
        score([tokens(one) for one in wanted], tokens(text), wordnet=_NoSynonyms())
        for text, wanted in zip(texts, references, strict=True)
    ]
    signature = (
        f"nltk:{version('nltk')}|tok:treebank|stages:exact,porter|synonyms:no|alpha:0.9|beta:3|gamma:0.5"
    )
    return Scored({"meteor": estimate(found, clusters)}, signature)


class _NoSynonyms:
    """In place of nltk's WordNet, whose data is a download."""

    def synsets(self, _word: str) -> list[Any]:
        return []


def corpus_metric(name: str) -> Any:
    """sacrebleu's metric of a name in `CORPUS`."""
    library = _library("sacrebleu.metrics")
    return library.BLEU() if name == "bleu" else library.CHRF(word_order=name.count("+"))


def corpus_rows(metric: Any, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """What such a metric sums over the texts, float64 [texts, k]: its own statistics of each, by the functions that sacrebleu's
    significance tests call. The metric's signature then names how many references a text has."""
    _check(texts, references)
    most = max(map(len, references))
    columns = [[one[place] if place < len(one) else None for one in references] for place in range(most)]
    return np.array(metric._extract_corpus_statistics(list(texts), columns), dtype=np.float64)


def of_corpus_rows(metric: Any) -> Callable[[Floats], Floats]:
    """Such a metric as a function of sums over texts: [draws, k] -> [draws]."""

    def scores(sums: Floats) -> Floats:
        each = sums.astype(np.int64).tolist()
        return np.array([metric._compute_score_from_stats(row).score for row in each])

    return scores


def _of_corpus(
    name: str, texts: Sequence[str], references: Sequence[Sequence[str]], clusters: Clusters
) -> Scored:
    """With the interval of our own bootstrap: sacrebleu's knows no clusters."""
    metric = corpus_metric(name)
    rows = corpus_rows(metric, texts, references)
    return Scored({name: bootstrap(of_corpus_rows(metric), rows, clusters)}, str(metric.get_signature()))


def _check(texts: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(texts) != len(references) or not texts:
        raise ValueError(f"{len(texts)} texts, references of {len(references)}")
    for number, wanted in enumerate(references):
        if not wanted:
            raise ValueError(f"text {number} has no reference")


def _library(name: str) -> Any:
    """A module of the extra `metrics`. Raises `UserError` naming it if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UserError(f"{package} is not installed: pip install 'corpusmill[metrics]'") from None


TEXT_METRICS: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]], Clusters], Scored]] = {
    "bleu": bleu,
    "chrf": chrf,
    "chrf++": lambda texts, references, clusters: chrf(texts, references, clusters, word_order=2),
    "rouge": rouge,
    "rouge-stemmed": lambda texts, references, clusters: rouge(texts, references, clusters, stemmer=True),
    "meteor": meteor,
}


def of_texts(
    metric: str, texts: Sequence[str], references: Sequence[Sequence[str]], clusters: Clusters = None
) -> Scored:
    """By a key of `TEXT_METRICS`; figures of stemmed words have `-stemmed` behind their names."""
    found = TEXT_METRICS[metric](texts, references, clusters)
    suffix = "-stemmed" if metric == "rouge-stemmed" else ""
    return found._replace(figures={name + suffix: one for name, one in found.figures.items()})
