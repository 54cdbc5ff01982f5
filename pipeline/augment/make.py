"""The copies of a partition: which documents get one, what it is, and what became of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.perturb import parse
from corpusmill.common.task_progress import advance
from corpusmill.pipeline.engine.custom import find_function
from corpusmill.pipeline.engine.document_hash import groups_of, hash_ids, purpose_seed
from corpusmill.schemas.augment import FAILED, MADE, SUFFIX, UNCHANGED, CopyParams
from corpusmill.schemas.tables import COPIES, DOCUMENTS

OPTION = "augment.copies"
NOTE = "augmented"  # in the metadata of a copy: its parent, and what made it
_HASHES = 2**64


class Wanted(NamedTuple):
    """A copy to be made of the document in `row`."""

    row: int
    doc_id: bytes
    parent: bytes
    locator: str
    text: str


class Answer(NamedTuple):
    """The text of a copy; without one, why it failed."""

    text: str | None
    reason: str = ""


Maker = Callable[[Sequence[Wanted]], list[Answer]]


class Spent(NamedTuple):
    """What copies cost: seconds that went by, for so many documents with so many characters."""

    by: str
    seconds: float
    documents: int
    characters: int


class Made(NamedTuple):
    """`docs`: copies as documents; `account`: a row for each copy that was to be made; `counters`: of both, by what made them."""

    docs: pa.Table
    account: pa.Table
    counters: Counter[str]
    spent: list[Spent]


def maker_of(params: CopyParams, seed: int, folders: Sequence[str]) -> Maker:
    """What makes the copies. Raises `UserError` for a perturbation or a function that there is not."""
    if params.perturb is not None:
        by = parse(params.perturb, OPTION)
        return lambda wanted: [Answer(by.apply(one.text, one.doc_id.hex(), seed)) for one in wanted]
    assert params.python is not None
    function = find_function(params.python, params.params, folders)
    return lambda wanted: _asked(function, params, [one.text for one in wanted])


def copies(
    docs: pa.Table, ways: Sequence[tuple[CopyParams, Maker]], validation: np.ndarray[Any, Any], seed: int
) -> Made:
    """The copies of a partition's documents that are not in `validation` (bool, one per row).

    Which documents, and what of them, depends on their ids, texts and the parameters alone.
    """
    counters, tables, rows = Counter[str](), [DOCUMENTS.empty_table()], list[dict[str, Any]]()
    speeds = list[Spent]()
    groups = groups_of(docs)
    for params, make in ways:
        wanted = _wanted(docs, params, validation, seed)
        begun = time.perf_counter()
        answers = make(wanted) if wanted else []
        spent = time.perf_counter() - begun
        kept: list[tuple[Wanted, str]] = []
        for one, answer in zip(wanted, answers, strict=True):
            source = f"{docs['source'][one.row].as_py()}{SUFFIX}"
            outcome = FAILED if not answer.text else UNCHANGED if answer.text == one.text else MADE
            if outcome == MADE:
                assert answer.text is not None
                kept.append((one, answer.text))
            detail = (answer.reason or "no text") if outcome == FAILED else None
            rows.append(
                {
                    "doc_id": one.doc_id, "parent": one.parent, "source": source, "by": params.by, "outcome": outcome,
                    "detail": detail,
                }
            )  # fmt: skip
            counters[f"by/{params.by}/{outcome}"] += 1
        speeds.append(Spent(params.by, spent, len(wanted), sum(len(one.text) for one in wanted)))
        tables.append(_documents(docs, groups, params, kept))
    return Made(
        pa.concat_tables(tables).combine_chunks(), pa.Table.from_pylist(rows, schema=COPIES), counters, speeds
    )


def _wanted(docs: pa.Table, params: CopyParams, validation: np.ndarray[Any, Any], seed: int) -> list[Wanted]:
    chosen = hash_ids(docs["doc_id"], purpose_seed(seed, f"augment {params.by}")) < params.share * _HASHES
    chosen = (chosen | (params.share == 1)) & ~validation
    if params.sources is not None:
        chosen &= pc.is_in(docs["source"], value_set=pa.array(params.sources)).to_numpy()
    found = []
    for row in np.flatnonzero(chosen).tolist():
        parent, source = docs["doc_id"][row].as_py(), docs["source"][row].as_py()
        text = docs["text"][row].as_py()
        for number in range(params.times):
            locator = f"{parent.hex()}#{params.by}.{number}"
            found.append(Wanted(row, doc_id(f"{source}{SUFFIX}", locator), parent, locator, text))
    return found


def _documents(
    docs: pa.Table, groups: pa.ChunkedArray, params: CopyParams, kept: Sequence[tuple[Wanted, str]]
) -> pa.Table:
    """Copies as documents: what is known of the parent, its place in the split, and in the metadata who it is."""
    rows = pa.array([one.row for one, _ in kept], pa.int64())
    own: dict[str, list[Any]] = {"doc_id": [], "locator": [], "metadata": [], "text": [], "text_hash": []}
    before = docs["metadata"].take(rows).to_pylist()
    for (one, text), metadata in zip(kept, before, strict=True):
        about = orjson.loads(metadata) if metadata else {}
        about[NOTE] = {"parent": one.parent.hex(), "by": params.by}
        own["doc_id"].append(one.doc_id)
        own["locator"].append(one.locator)
        own["metadata"].append(orjson.dumps(about).decode())
        own["text"].append(text)
        own["text_hash"].append(text_hash(text))
    columns = []
    for field in DOCUMENTS:
        if field.name in own:
            columns.append(pa.array(own[field.name], field.type))
        elif field.name == "source":
            columns.append(pc.binary_join_element_wise(docs["source"].take(rows), SUFFIX, ""))
        else:
            column = groups if field.name == "cluster_id" else docs[field.name]
            columns.append(column.take(rows).cast(field.type))
    return pa.Table.from_arrays(columns, schema=DOCUMENTS)


def _asked(function: Callable[..., Any], params: CopyParams, texts: Sequence[str]) -> list[Answer]:
    """The function's answers, `at_once` texts a call. Where a call raises, each of its texts is asked for alone."""
    found: list[Answer] = []
    for begin in range(0, len(texts), params.at_once):
        some = list(texts[begin : begin + params.at_once])
        answers = _called(function, params, some)
        if isinstance(answers, str) and len(some) > 1:
            alone = [_called(function, params, [text]) for text in some]
            found += [Answer(None, one) if isinstance(one, str) else one[0] for one in alone]
        else:
            found += [Answer(None, answers)] if isinstance(answers, str) else answers
        advance(sum(map(len, some)))
    return found


def _called(function: Callable[..., Any], params: CopyParams, texts: list[str]) -> list[Answer] | str:
    """Its answers, or where it raised, without what the error says, which may be text. Raises `WorkError` for other answers than the
    function must give."""
    try:
        answers = function(texts, **params.params)
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(last.filename).name}, line {last.lineno}"
    if not isinstance(answers, list) or len(answers) != len(texts):
        size = f"{len(answers)} answers" if isinstance(answers, list) else f"a {type(answers).__name__}"
        raise WorkError(
            f"{OPTION}: {params.python}: must return a list with a text for each of {len(texts)} texts; returned {size}"
        )
    wrong = next((one for one in answers if one is not None and not isinstance(one, str)), None)
    if wrong is not None:
        raise WorkError(
            f"{OPTION}: {params.python}: must return texts or None; returned a {type(wrong).__name__}"
        )
    return [Answer(one, "" if one is not None else "the function gave none") for one in answers]
