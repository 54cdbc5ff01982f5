"""A tool's language of each text, and its probability.

python languages.py TOOL TEXTS.json    prints [[label, probability], ...]; TOOL is py3langid, CLD3 or lingua
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path


def py3langid() -> Callable[[str], tuple[str, float]]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return lambda text: tuple(identifier.classify(text))


def cld3() -> Callable[[str], tuple[str, float]]:
    import gcld3

    identifier = gcld3.NNetLanguageIdentifier(min_num_bytes=0, max_num_bytes=2000)

    def one(text: str) -> tuple[str, float]:
        found = identifier.FindLanguage(text=text)
        return found.language, found.probability

    return one


def lingua() -> Callable[[str], tuple[str, float]]:
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def one(text: str) -> tuple[str, float]:
        found = detector.compute_language_confidence_values(text)
        return found[0].language.iso_code_639_1.name.lower(), found[0].value

    return one


def main() -> None:
    texts = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    identify = {"py3langid": py3langid, "CLD3": cld3, "lingua": lingua}[sys.argv[1]]()
    print(json.dumps([[str(name), float(score)] for name, score in map(identify, texts)]))


if __name__ == "__main__":
    main()
