"""Names and addresses of people, found by a model that the user names: the one part of redaction that reads text as
Python strings, and the slow one.

A model is `spacy:PACKAGE_OR_FOLDER` (its entities PERSON and PER), `gliner:FOLDER` (asked for "person" and "street
address"), or `module:function`: a function that takes a text and returns (start, end, kind) in characters. Nothing is
ever downloaded. A text is read alone and in pieces of its own, so that what is found in it depends on no other text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from corpusmill.common.errors import UserError
from corpusmill.pipeline.redact import Kind
from corpusmill.schemas.stages import MODEL_KINDS

SPACY_PIECE, GLINER_PIECE = 100_000, 1_000  # characters read at once: memory; 384 tokens
MIN_SCORE = 0.5
SPACY_LABELS: dict[str, Kind] = {"PERSON": "name", "PER": "name", "persName": "name"}
GLINER_LABELS: dict[str, Kind] = {"person": "name", "street address": "address"}


class Span(NamedTuple):
    """Characters `start` to `end` of a text, and the kind of datum."""

    start: int
    end: int
    kind: Kind


Detector = Callable[[str], Iterable[tuple[int, int, str]]]


def find_spans(detector: Detector, text: str) -> list[Span]:
    """What the detector finds in a text, in order: the known kinds, without white space at the ends, none empty."""
    found = []
    for start, end, kind in detector(text):
        start, end = max(0, start), min(len(text), end)
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        end = start + len(piece.strip())
        if start < end and kind in MODEL_KINDS:
            found.append(Span(start, end, kind))
    return sorted(found)


@lru_cache(maxsize=2)
def load(name: str) -> Detector:
    """The detector that `redact.model` names. Raises `UserError` where it is not installed, or is none."""
    form, _, rest = name.partition(":")
    if not rest:
        raise UserError(f"redact.model: '{name}'; allowed are spacy:…, gliner:FOLDER and module:function")
    if form == "spacy":
        return _spacy(rest)
    if form == "gliner":
        return _gliner(rest)
    try:
        function = getattr(import_module(form), rest)
    except (ImportError, AttributeError) as error:
        raise UserError(f"redact.model: no function {rest} in a module {form}: {error}") from None
    return cast(Detector, function)


def identity(name: str) -> str:
    """Identifies a version of a model: part of the stage's key."""
    form, _, rest = name.partition(":")
    place = Path(rest)
    if form in ("spacy", "gliner") and place.is_dir():
        return _digest(sorted(path for path in place.rglob("*") if path.is_file()), place)
    module = import_module(rest if form == "spacy" else form)
    version = getattr(module, "__version__", None)
    return (
        str(version) if version else _digest([Path(str(module.__file__))], Path(str(module.__file__)).parent)
    )


def _digest(files: Iterable[Path], base: Path) -> str:
    import xxhash

    digest = xxhash.xxh3_128()
    for path in files:
        digest.update(str(path.relative_to(base)).encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _spacy(name: str) -> Detector:
    spacy = _extra("spacy")
    try:
        nlp = spacy.load(name, exclude=["parser", "lemmatizer", "textcat"])
    except OSError:
        raise UserError(
            f"redact.model: spacy finds no package or folder '{name}'; install it first: nothing is downloaded"
        ) from None

    def detect(text: str) -> Iterator[tuple[int, int, str]]:
        for base, piece in pieces(text, SPACY_PIECE):
            for entity in nlp(piece).ents:
                if entity.label_ in SPACY_LABELS:
                    yield base + entity.start_char, base + entity.end_char, SPACY_LABELS[entity.label_]

    return detect


def _gliner(folder: str) -> Detector:
    if not Path(folder).is_dir():
        raise UserError(
            f"redact.model: '{folder}' is not a folder; fetch the model first: nothing is downloaded"
        )
    model = _extra("gliner").GLiNER.from_pretrained(folder, local_files_only=True)
    labels = list(GLINER_LABELS)

    def detect(text: str) -> Iterator[tuple[int, int, str]]:
        for base, piece in pieces(text, GLINER_PIECE):
            for found in model.predict_entities(piece, labels, threshold=MIN_SCORE):
                yield base + found["start"], base + found["end"], GLINER_LABELS[found["label"]]

    return detect


def _extra(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise UserError(
            f"redact.model: {package} is not installed; pip install {package}, or leave names and addresses out"
        ) from None


def pieces(text: str, size: int) -> Iterator[tuple[int, str]]:
    """(offset, piece) of at most `size` characters, cut after the last line break of their second half, or the last
    white space; a longer run of neither is cut where it is."""
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            line = text.rfind("\n", start + size // 2, end)
            blank = text.rfind(" ", start + size // 2, end)
            end = (line if line >= 0 else blank if blank >= 0 else end - 1) + 1
        yield start, text[start:end]
        start = end
