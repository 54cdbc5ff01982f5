"""Names by a spaCy model, read as `redact` reads it.

python spacy_names.py DOCUMENTS MODEL    prints {"seconds", "finds": one list a document of [start, end], in characters}
"""

from __future__ import annotations

import importlib
import json
import sys

from common import cpu_seconds, documents

LABELS = ("PERSON", "PER", "persName")


def main() -> None:
    _, texts = documents(sys.argv[1])
    nlp = importlib.import_module(sys.argv[2]).load(
        exclude=["parser", "lemmatizer", "attribute_ruler", "tagger"]
    )
    nlp("warm up")
    finds: list[list[tuple[int, int]]] = []

    def look() -> None:
        for text in texts:
            finds.append([(e.start_char, e.end_char) for e in nlp(text).ents if e.label_ in LABELS])

    seconds = cpu_seconds(look)
    print(json.dumps({"seconds": seconds, "finds": finds}))


if __name__ == "__main__":
    main()
