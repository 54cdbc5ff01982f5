"""A stage of the user's own: a function on an Arrow table of documents, named in a recipe as `module:function`.

The function takes the documents of a partition (`corpusmill.schemas.tables.DOCUMENTS`) and returns those that stay, in
any order, with their texts as they were or changed: what it leaves out becomes rows of the ledger, and so do its edits. Or
it returns an `Outcome` with decisions of its own.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import LocalStage, Outcome, Stage, Transform
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.stages import CustomStage
from corpusmill.schemas.tables import DECISIONS, DOCUMENTS, OUTCOMES, QUARANTINED, REMOVED

MARK = "__corpusmill_stage__"  # on a function: the version that its decorator gives


class Custom(LocalStage):
    """The function as a stage; imported when the key is made or a partition is worked on, not before."""

    def __init__(self, recipe: Recipe, name: str) -> None:
        self.recipe, self.name = recipe, name
        self.params: CustomStage = recipe.custom[name]

    @property
    def version(self) -> str:  # type: ignore[override]  # read at need: it may take the import
        """The recipe's, or that of the function's decorator; raises `UserError` if there is neither."""
        given = self.params.version or getattr(self._function(), MARK, None)
        if not given:
            raise UserError(
                f"stages: {self.params.python}: version: missing; give one that changes whenever the code does, such"
                ' as version: "1"'
            )
        return str(given)

    def key_params(self) -> dict[str, Any]:
        """The function's name and arguments, and the seed; what its code does is known by the version alone."""
        self._function()
        return super().key_params()

    def transform(self, folder: Folder, partition: str) -> Transform:
        where = f"stage {self.name} ({self.params.python}), partition {partition}"
        return partial(apply, self._function(), self.params.params, self.name, where)

    def _function(self) -> Callable[..., Any]:
        return find_function(self.params.python, self.params.params, self.recipe.cluster.import_from)


def find_function(python: str, params: dict[str, Any], folders: Iterable[str]) -> Callable[..., Any]:
    """The function `module:function`, its module looked for in `folders` before the rest of the import path.

    Raises `UserError` if there is none, it is no function, or it does not take `params`.
    """
    name, _, attribute = python.partition(":")
    for folder in reversed([os.path.abspath(folder) for folder in folders]):  # noqa: PTH100 (no link resolved)
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UserError(
                f"stages: {python}: {name} imports {error.name}, which is not installed"
            ) from None
        looked = ", ".join(folders) or str(Path.cwd())
        raise UserError(f"stages: {python}: no module {name} in {looked}, nor is it installed") from None
    except Exception as error:
        raise UserError(f"stages: {python}: {_last_line(error, name)}") from None
    function: Callable[..., Any] | None = getattr(module, attribute, None)
    if function is None:
        raise UserError(f"stages: {python}: {name} has no {attribute}")
    if not callable(function):
        raise UserError(f"stages: {python}: {attribute} is a {type(function).__name__}, not a function")
    try:
        inspect.signature(function).bind(None, **params)
    except (TypeError, ValueError) as error:
        raise UserError(f"stages: {python}: cannot be called with a table and its params: {error}") from None
    return function


def apply(
    function: Callable[..., Any], params: dict[str, Any], name: str, where: str, docs: pa.Table
) -> Outcome:
    """What the function makes of a table of documents; raises `WorkError` in one line for a mistake of its."""
    try:
        result = function(docs, **params)
    except Exception as error:
        raise WorkError(f"{where}: {_last_line(error, function.__module__)}") from error
    if isinstance(result, pa.Table):
        return of_kept(docs, result, name, where)
    if isinstance(result, Outcome):
        return _checked(docs, result, name, where)
    raise WorkError(
        f"{where}: must return the table of documents that stay, or an Outcome; returned {type(result).__name__}"
    )


def of_kept(docs: pa.Table, kept: pa.Table, name: str, where: str) -> Outcome:
    """The outcome of a stage that returns what stays: rows left out are removed by the rule `name`, and a changed text is
    one edit, between what its beginning and its end have in common with the text that came in."""
    kept, rows = _in_order(docs, kept, where)
    before = docs["text"].take(rows)
    changed = pc.indices_nonzero(pc.fill_null(pc.not_equal(kept["text"], before), True)).to_pylist()
    edits = []
    texts, hashes = kept["text"].to_pylist() if changed else [], kept["text_hash"].to_pylist()
    for row in changed:
        old, new = before[row].as_py(), texts[row]
        if new is None:
            raise WorkError(f"{where}: text: is null in a document; leave the document out to remove it")
        hashes[row] = text_hash(new)
        edits.append(
            _decision(
                kept["doc_id"][row].as_py(), "kept", name, edits=[{"stage": name, **_edit(old, new, name)}]
            )
        )
    kept = kept.set_column(
        kept.schema.get_field_index("text_hash"),
        DOCUMENTS.field("text_hash"),
        pa.array(hashes, pa.binary(16)),
    )
    gone = pc.is_null(pc.index_in(docs["doc_id"], kept["doc_id"].combine_chunks()))
    removed = [
        _decision(doc_id, REMOVED, name, rule=name) for doc_id in docs["doc_id"].filter(gone).to_pylist()
    ]
    decided = pa.Table.from_pylist([*removed, *edits], schema=DECISIONS)
    return Outcome(kept, decided, None, {"removed": len(removed), "edited": len(edits)})


def _decision(doc_id: bytes, outcome: str, stage: str, **columns: Any) -> dict[str, Any]:
    return {"doc_id": doc_id, "outcome": outcome, "stage": stage, **columns}


def _edit(old: str, new: str, kind: str) -> dict[str, Any]:
    """The one place where two texts differ, in characters."""
    start = len(os.path.commonprefix([old, new]))  # noqa: RUF071 (of characters)
    end = len(os.path.commonprefix([old[start:][::-1], new[start:][::-1]]))  # noqa: RUF071
    return {
        "kind": kind,
        "offset": start,
        "length": len(old) - start - end,
        "written": len(new) - start - end,
    }


def _in_order(docs: pa.Table, kept: pa.Table, where: str) -> tuple[pa.Table, pa.Array]:
    """`kept` in the order and with the columns of `docs`, and the rows of `docs` that it has."""
    if "doc_id" not in kept.column_names:
        raise WorkError(f"{where}: the table that it returned has no doc_id")
    if others := [name for name in kept.column_names if name not in DOCUMENTS.names]:
        raise WorkError(f"{where}: returned a column that documents do not have: {', '.join(others)}")
    place = pc.index_in(kept["doc_id"].cast(pa.binary(16)), docs["doc_id"].combine_chunks()).combine_chunks()
    if place.null_count:
        raise WorkError(f"{where}: returned {place.null_count} documents that did not come in (by doc_id)")
    if len(place.unique()) != len(place):
        raise WorkError(f"{where}: returned a document twice (by doc_id)")
    order = pc.sort_indices(place)
    rows = place.take(order)
    columns = []
    for field in DOCUMENTS:
        source = (
            kept[field.name].take(order) if field.name in kept.column_names else docs[field.name].take(rows)
        )
        try:
            columns.append(source.cast(field.type))
        except pa.ArrowException:  # no such cast, or a value that the type cannot hold
            raise WorkError(f"{where}: {field.name}: is {source.type}, must be {field.type}") from None
    return pa.Table.from_arrays(columns, schema=DOCUMENTS), rows


def _checked(docs: pa.Table, outcome: Outcome, name: str, where: str) -> Outcome:
    """An outcome of the function's own, its columns brought to the schemas and its documents counted."""
    if not isinstance(outcome.kept, pa.Table) or not isinstance(outcome.decisions, pa.Table):
        raise WorkError(f"{where}: Outcome: kept and decisions must be Arrow tables")
    kept, rows = _in_order(docs, outcome.kept, where)
    given = outcome.decisions
    for column in ("doc_id", "outcome"):
        if column not in given.column_names:
            raise WorkError(f"{where}: the decisions that it returned have no {column}")
    if wrong := sorted(set(given["outcome"].to_pylist()) - set(OUTCOMES)):
        raise WorkError(f"{where}: outcome '{wrong[0]}' is not one of {', '.join(OUTCOMES)}")
    arrays = [
        pa.array([name] * len(given), pa.string())
        if field.name == "stage"
        else given[field.name].cast(field.type)
        if field.name in given.column_names
        else pa.nulls(len(given), field.type)
        for field in DECISIONS
    ]
    decided = pa.Table.from_arrays(arrays, schema=DECISIONS)
    gone = pc.is_in(decided["outcome"], pa.array([REMOVED, QUARANTINED]))
    left = {*docs["doc_id"].to_pylist()} - {*kept["doc_id"].to_pylist()}
    if sorted(decided["doc_id"].filter(gone).to_pylist()) != sorted(left):
        raise WorkError(
            f"{where}: {len(docs)} documents in, {len(kept)} kept, but {pc.sum(gone).as_py() or 0} removed or"
            " quarantined: each document must be in one of them"
        )
    hashes = [text_hash(text) for text in kept["text"].to_pylist()]
    if hashes != docs["text_hash"].take(rows).to_pylist():
        kept = kept.set_column(
            kept.schema.get_field_index("text_hash"),
            DOCUMENTS.field("text_hash"),
            pa.array(hashes, pa.binary(16)),
        )
    return Outcome(kept, decided, outcome.signals, dict(outcome.counters))


def _last_line(error: Exception, module: str) -> str:
    """An error in one line, with the last place in the user's module where it came from."""
    file = getattr(sys.modules.get(module), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: {error.msg}"
    own = [f for f in frames if f.filename == file] or [f for f in frames if f.filename != __file__][-1:]
    at = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""
    text = str(error).splitlines()
    return f"{at}{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def stage(*, version: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function on a table of documents as a stage with this version, for recipes that give none:
    `{python: my_module:fn}`. Change it whenever the code may give other results: it is part of the stage's key."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, MARK, version)
        return function

    return mark


def load_stage(name: str, recipe: Recipe) -> Stage:
    """The stage of that name, imported only now: `pipeline/<name>/stage.py` defines `STAGE`; or the user's own."""
    from importlib import import_module

    if name in recipe.custom:
        return Custom(recipe, name)
    stage: Callable[[Recipe], Stage] = import_module(f"corpusmill.pipeline.{name}.stage").STAGE
    return stage(recipe)
