"""The Gopher values of Dolma or NeMo Curator, by their own code, under the names of our signals.

python gopher_values.py dolma DOCUMENTS    prints [{signal: value} of each document]
python gopher_values.py nemo DOCUMENTS

Their packages are here without what they depend on: the files with the definitions are loaded alone, and what those
import for other ends is left empty.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from common import documents

HEURISTICS = "nemo_curator.stages.text.filters.heuristic"


def _empty(name: str, **members: Any) -> ModuleType:
    """A module of that name with nothing in it but `members`; a package, so that others may lie in it."""
    module = ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
    return module


def dolma(texts: list[str]) -> list[dict[str, float]]:
    """`gopher_v1`, as the tagger's attributes."""

    class Registry:
        @staticmethod
        def add(_: str) -> Any:
            return lambda tagger: tagger

    source = _root("dolma") / "taggers/gopher.py"
    for name in ("dolma", "dolma.core", "dolma.taggers"):
        _empty(name)
    _empty("dolma.core.data_types", DocResult=object, Document=object, Span=object)
    _empty("dolma.core.registry", TaggerRegistry=Registry)
    _empty("dolma.core.taggers", BaseTagger=object)
    gopher = _run("dolma.taggers.gopher", source)
    rows = []
    for text in texts:
        found = gopher.get_attributes(text)
        own = {
            "word_count": found.word_count,
            "median_word_length": found.median_word_length,
            "symbol_ratio": found.symbol_to_word_ratio,
            "alpha_words": found.fraction_of_words_with_alpha_character,
            "stop_words": found.required_word_count,
            "bullet_lines": found.fraction_of_lines_starting_with_bullet_point,
            "ellipsis_lines": found.fraction_of_lines_ending_with_ellipsis,
            "dup_line_frac": found.fraction_of_duplicate_lines,
            "dup_line_chars": found.fraction_of_characters_in_duplicate_lines,
            **{f"top_{n}_gram": value for n, value in found.fraction_of_characters_in_most_common_ngram},
            **{f"dup_{n}_gram": value for n, value in found.fraction_of_characters_in_duplicate_ngrams},
        }
        rows.append({f"gopher_dolma.{name}": float(value) for name, value in own.items()})
    return rows


def nemo(texts: list[str]) -> list[dict[str, float]]:
    """The scores of the filters after Gopher; of equally frequent n-grams the first in the text."""

    class DocumentFilter:
        def __init__(self) -> None:
            self._sentences = self._paragraphs = self._ngrams = None

    text = _root("nemo_curator") / "stages/text"
    for name in (
        "nemo_curator", "nemo_curator.stages", "nemo_curator.stages.text", "nemo_curator.stages.text.filters",
        "nemo_curator.stages.text.utils", HEURISTICS,
    ):  # fmt: skip
        _empty(name)
    _empty("nemo_curator.stages.text.filters.doc_filter", DocumentFilter=DocumentFilter)
    for name in ("constants", "text_utils"):
        _run(f"nemo_curator.stages.text.utils.{name}", text / f"utils/{name}.py")
    string = _run(f"{HEURISTICS}.string", text / "filters/heuristic/string.py")
    repetition = _run(f"{HEURISTICS}.repetition", text / "filters/heuristic/repetition/repetition.py")
    # Its choice among equals is the order of a set of strings, another in each process.
    vars(repetition)["set"] = dict.fromkeys
    filters = {
        "word_count": string.WordCountFilter(),
        "mean_word_length": string.MeanWordLengthFilter(),
        "symbol_ratio": string.SymbolsToWordsFilter(),
        "bullet_lines": string.BulletsFilter(),
        "ellipsis_lines": string.EllipsisFilter(),
        "alpha_words": string.WordsWithoutAlphabetsFilter(),
        "stop_words": string.CommonEnglishWordsFilter(stop_at_false=False),
        "unique_line_frac": repetition.RepeatedLinesFilter(),
        "unique_para_frac": repetition.RepeatedParagraphsFilter(),
        "unique_line_chars": repetition.RepeatedLinesByCharFilter(),
        "unique_para_chars": repetition.RepeatedParagraphsByCharFilter(),
        **{f"top_{n}_gram": repetition.RepeatingTopNGramsFilter(n) for n in range(2, 5)},
        **{f"dup_{n}_gram": repetition.RepeatingDuplicateNGramsFilter(n) for n in range(5, 11)},
    }
    return [
        {f"gopher_nemo.{name}": float(own.score_document(text)) for name, own in filters.items()}
        for text in texts
    ]


def _root(package: str) -> Path:
    """Where an installed package lies; it is not imported."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0])


def _run(name: str, path: Path) -> ModuleType:
    """The file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    tool, path = sys.argv[1:]
    _, texts = documents(path)
    print(json.dumps(dolma(texts) if tool == "dolma" else nemo(texts)))


if __name__ == "__main__":
    main()
