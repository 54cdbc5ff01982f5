"""Tables and texts of a finished run cleaned as its `redact` cleans documents: the same datum gets the same replacement, also in a
ledger, a list of duplicates or an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import folders_of, recipe_of
from corpusmill.pipeline.redact.apply import Redactor
from corpusmill.pipeline.redact.prepare import load

# Columns of published tables that hold names of ours, and the text, which the stage itself has cleaned.
_CLEAN: Final = frozenset(("text", "source", "language", "outcome", "stage", "rule", "change", "set", "part"))
NAME: Final = "redact"


def redact_folder(run: Folder) -> Folder | None:
    """The folder of the `redact` stage of a run or of a stage's command; None if its recipe has none."""
    recipe, alone = recipe_of(run.url)
    if NAME not in recipe.stage_names:
        return None
    return folders_of(run, recipe.stage_names, alone)[NAME]


class Cleaner:
    """Edits values as the `redact` of one run does."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    @classmethod
    def of_run(cls, run: Folder) -> Cleaner | None:
        """The cleaner of a finished run; None if its recipe has no `redact`. Raises `UserError` if pseudonyms need a key that is not
        in the environment."""
        folder = redact_folder(run)
        if folder is None:
            return None
        from corpusmill.pipeline.redact.stage import Redact

        stage = Redact(recipe_of(run.url)[0])
        known = load(folder) if stage.looks_across else None
        return cls(Redactor(stage.params, stage.key, known))

    def table(self, table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """The table with its columns of strings edited; rows, schema and all other columns stay. `columns`: these alone; by default
        all but `text` and those that hold names of ours. `url` is read as a URL, `metadata` as JSON, others as what each value looks
        like. A second pass changes nothing. A kind whose documents are removed is replaced by its tag."""
        for place, field in enumerate(table.schema):
            wanted = field.name not in _CLEAN if columns is None else field.name in columns
            if wanted and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
                column = self._column(table.column(place), field.name)
                table = table.set_column(place, field, column)
        return table

    def _column(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        chunks = [self.redactor.column(chunk, name)[0] for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type)

    def texts(self, values: pa.Array) -> pa.Array:
        """Texts (strings or large strings), edited."""
        return self.redactor.column(values, "text")[0]

    def text(self, value: str) -> str:
        """A text, edited."""
        cleaned: str = self.texts(pa.array([value], pa.large_string()))[0].as_py()
        return cleaned
