"""Texts to show, fetched by doc_id. All are redacted first, also those removed before `redact` saw them."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import LocalStage, Scheduler, load_stage
from corpusmill.pipeline.report.survey import read_columns
from corpusmill.schemas.documents import DOCUMENTS
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.redact import DEFAULT_KINDS

# A secret that the end of an excerpt would cut in half goes unseen: this much more is redacted, then dropped.
MARGIN = 300
PAIR_SEARCH = 50_000  # characters of two copies in which their first difference is looked for
Wanted = dict[bytes, tuple[int, int]]  # doc_id -> first character wanted, and one past the last
_TAG = re.compile(r"<[^<>\n]{1,60}>|\[[^\[\]\n]{1,60}\]|\S{1,60}")


def fetch(
    scheduler: Scheduler, folder: Folder, partitions: list[str], wanted: Wanted, label: str
) -> dict[bytes, str]:
    """doc_id -> the wanted characters of its text in `folder`'s documents; unknown ids are left out."""
    if not wanted:
        return {}
    found: dict[bytes, str] = {}
    for part in scheduler.map(partial(_fetch, folder, wanted), partitions, label):
        found.update(part)
    return found


def _fetch(folder: Folder, wanted: Wanted, name: str) -> dict[bytes, str]:
    file = folder / f"documents/{name}.parquet"
    ids = read_columns(file, ["doc_id"])["doc_id"]
    hits = pc.indices_nonzero(pc.is_in(ids, pa.array(sorted(wanted), ids.type)))
    if not len(hits):
        return {}
    texts = read_columns(file, ["text"])["text"].take(hits).to_pylist()
    return {i: text[slice(*wanted[i])] for i, text in zip(ids.take(hits).to_pylist(), texts, strict=True)}


def masked(recipe: Recipe, folder: Folder, texts: dict[bytes, str], chars: int) -> dict[bytes, str]:
    """`texts` with personal data and secrets replaced by tags, then cut to `chars` characters: of every kind that a
    pattern finds, and whatever else the recipe redacts (names, private addresses).

    The run's own redactor does it. A text that it will not pass on is left out.
    """
    if not texts:
        return {}
    kinds = list(dict.fromkeys((*recipe.redact.kinds, *DEFAULT_KINDS)))
    tags = {"kinds": kinds, "replacement": "tag", "replacements": {}}
    safe = recipe.model_copy(update={"redact": recipe.redact.model_copy(update=tags)})
    stage = load_stage("redact", safe)
    assert isinstance(stage, LocalStage)
    ids = sorted(texts)
    filled = {"doc_id": ids, "text": [texts[i] for i in ids], "text_hash": ids, "source": [""] * len(ids)}
    filled["locator"] = [""] * len(ids)
    columns = [
        pa.array(filled[f.name], f.type) if f.name in filled else pa.nulls(len(ids), f.type)
        for f in DOCUMENTS
    ]
    kept = stage.transform(folder, "report")(pa.Table.from_arrays(columns, schema=DOCUMENTS)).kept
    return {
        i: cut(text, chars)
        for i, text in zip(kept["doc_id"].to_pylist(), kept["text"].to_pylist(), strict=True)
    }


def cut(text: str, chars: int) -> str:
    """The first `chars` characters, an ellipsis for the rest."""
    if len(text) <= chars:
        return text
    space = text.rfind(" ", chars - 20, chars + 1)  # not in mid-word, where words are of common length
    return text[: space if space > 0 else chars].rstrip() + " …"


def window(a: str, b: str, chars: int) -> tuple[str, str]:
    """Two copies, each `chars` characters from shortly before their first difference on."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    start = max(0, same - chars // 3)
    start = a.find(" ", start, same) + 1 if start else 0  # copies are alike up to here: one place fits both
    lead = "… " if start else ""
    return lead + cut(a[start:], chars), lead + cut(b[start:], chars)


def marked(a: str, b: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both texts as runs of (differs, text), compared word by word."""
    words_a, words_b = re.findall(r"\s*\S+|\s+", a), re.findall(r"\s*\S+|\s+", b)
    left: list[tuple[bool, str]] = []
    right: list[tuple[bool, str]] = []
    for kind, i, j, k, m in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        if i < j:
            left += _run(kind != "equal", "".join(words_a[i:j]))
        if k < m:
            right += _run(kind != "equal", "".join(words_b[k:m]))
    return left, right


def _run(differs: bool, text: str) -> list[tuple[bool, str]]:
    """A run of words; the white space before one that differs is no part of it."""
    bare = text.lstrip() if differs else text
    space = text[: len(text) - len(bare)]
    return [(False, space), (differs, bare)] if space else [(differs, bare)]


def tag_in_context(text: str, at: int) -> dict[str, str]:
    """What stands in place of a removed span, `at` characters into an excerpt of the redacted text."""
    found = _TAG.match(text, at)
    end = found.end() if found else at
    return {"before": text[:at], "tag": text[at:end], "after": text[end:]}
