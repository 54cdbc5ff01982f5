"""Toxicity: AUC on each labelled set by our model trained without that set's family, with alt-profanity-check on the same texts.

That peer has learnt from the tweets and from a large set of talk page comments: its figures on those two families are of
texts that it may have seen, and are left out of the comparison's means.

`--labelled FILE`: JSON lines, CSV or TSV with `text` and `label` (1, true or toxic: toxic); the shipped model is judged.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench import peers
from bench._decisions import Row
from bench.natural import DATA
from bench.peers import NotMeasured, Peer

PEER = Peer(
    "alt-profanity-check",
    ("alt-profanity-check==1.9.1", "scikit-learn==1.9.1", "joblib==1.6.0", "numpy==2.4.6", "scipy==1.17.1"),
    "profanity.py",
)  # fmt: skip
POSITIVE = ["1", "true", "True", "toxic"]
SEEN = ("davidson_tweets", "wikipedia_talk", "jigsaw_sample")  # what the peer has learnt from, or its family
# Kinds of text, their sets, and the mean AUC that is wanted.
KINDS = {
    "chat and social": (("forum_insults", "convabuse", "ethos"), 0.87),
    "statements in forums": (("edos_sexism", "toxigen_prompts"), 0.77),
    "functional tests": (("hatemoji_build", "identity_templates"), 0.68),
}


def rows(labelled: Path | None) -> list[Row]:
    """One row per set, and one per kind of text."""
    return _own(labelled) if labelled is not None else _shared()


def _shared() -> list[Row]:
    from corpusmill.pipeline.filter.classifiers.training import auc
    from tools import toxicity_sets, train_toxicity

    judged, harmless = toxicity_sets.judged(DATA), toxicity_sets.harmless(DATA)
    held_out = train_toxicity.scores_without(judged, harmless, 0)
    found = []
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for one in judged:
        truth = one.labels[:, 0] > 0.5
        ours[one.name] = auc(held_out[one.name], truth) or 0.0
        scores = _peer(one.texts)
        if scores is not None:
            theirs[one.name] = auc(scores, truth) or 0.0
        note = "the peer may have seen it" if one.name in SEEN else ""
        known = {PEER.label: theirs[one.name]} if one.name in theirs else {}
        found.append(Row("toxicity AUC", f"{one.name}, {len(one.texts):,}", ours[one.name], known, note=note))
    for kind, (names, wanted) in KINDS.items():
        known = {PEER.label: float(np.mean([theirs[name] for name in names]))} if theirs else {}
        mean = float(np.mean([ours[name] for name in names]))
        found.append(Row("toxicity AUC, mean", f"{kind}: {', '.join(names)}", mean, known, wanted))
    return found


def _own(labelled: Path) -> list[Row]:
    from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
    from corpusmill.pipeline.filter.classifiers.labelled import read_labelled
    from corpusmill.pipeline.filter.classifiers.training import auc, score_texts

    one = read_labelled(labelled, "text", "label", POSITIVE)
    file = fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])
    truth = np.asarray(one.positive, np.bool_)
    mine = auc(score_texts(predictor.load(file.path, file.xxh3), "toxic", one.texts, "worst"), truth)
    scores = _peer(one.texts)
    theirs = {} if scores is None else {PEER.label: auc(scores, truth) or 0.0}
    return [Row("toxicity AUC", f"{one.name}, {len(one):,}", mine or 0.0, theirs)]


def _peer(texts: Sequence[str]) -> npt.NDArray[np.float64] | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        try:
            return np.array(peers.ask(PEER, path), np.float64)
        except NotMeasured as error:
            print(f"{PEER.label}: not measured: {error}", file=sys.stderr)
            return None
