"""Tf-idf and logistic regression: scores of texts by a model of the texts of other groups. Prints one JSON object: group -> scores.

The file holds `texts`, `labels` (0 or 1), `groups` (a name each) and `judged`, the groups to score.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

CHARS = 4_000  # of a text


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    texts = [text[:CHARS] for text in given["texts"]]
    found = {}
    for group in given["judged"]:
        learn = [i for i, own in enumerate(given["groups"]) if own != group]
        judge = [i for i, own in enumerate(given["groups"]) if own == group]
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=3, max_features=100_000, sublinear_tf=True)
        model = LogisticRegression(C=10.0, class_weight="balanced", max_iter=200)
        model.fit(vectorizer.fit_transform([texts[i] for i in learn]), [given["labels"][i] for i in learn])
        scores = model.decision_function(vectorizer.transform([texts[i] for i in judge]))
        found[group] = scores.tolist()
    print(json.dumps(found))


main()
