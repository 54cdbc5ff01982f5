"""The file of texts that runs wrote, beside the file of ratings: a JSON line each. A later start asks about the same texts, even where
another machine, thread count or version of PyTorch would generate others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.judging import JudgedText


def texts_file(ratings: Path) -> Path:
    """`ratings.texts.jsonl` of `ratings.jsonl`."""
    return ratings.with_suffix(".texts.jsonl")


def read_texts(file: Path) -> list[JudgedText]:
    """Raises `UserError` naming a line that is none."""
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")
    return [
        JudgedText.from_json(line, f"{file}: line {number}", UserError)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def kept_texts(
    file: Path,
    model: str,
    weights: str,
    prompts: Sequence[str],
    sampling: Sampling,
    write: Callable[[], list[str]],
) -> list[str]:
    """A text for each prompt: those that the file has of these weights and this sampling, the n-th of equal prompts the n-th time; the
    others are taken from what `write` gives for all prompts, and added to the file."""
    rows = read_texts(file)
    waiting: dict[str, list[str]] = {}
    for row in reversed(rows):
        if row.weights == weights and row.sampling == sampling:
            waiting.setdefault(row.prompt, []).append(row.text)
    found = [waiting[prompt].pop() if waiting.get(prompt) else None for prompt in prompts]
    if None not in found:
        return [text for text in found if text is not None]
    texts = [new if old is None else old for old, new in zip(found, write(), strict=True)]
    for prompt, old, text in zip(prompts, found, texts, strict=True):
        if old is None:
            rows.append(JudgedText(model=model, weights=weights, sampling=sampling, prompt=prompt, text=text))
    file.parent.mkdir(parents=True, exist_ok=True)
    Folder(file).write(b"".join(row.model_dump_json().encode() + b"\n" for row in rows))
    return texts
