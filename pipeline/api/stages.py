"""Stages as functions on tables: the same decisions as the command's on the same documents.

Documents come as any table with the Arrow PyCapsule interface (pyarrow, pandas, Polars, DuckDB, datasets), or, where they
are larger than memory, as an iterator of tables or batches. Of their columns, `text` (or `text_column`) is the text, `id`
(or `id_column`) an id of their own, `source` where they are from, `url` and `date` what they are; all others become
`metadata`. What comes back has the columns of `corpusmill.schemas.tables.DOCUMENTS`, is mapped into memory from a file,
and can be given to the next function: ids and clusters stay.

`decisions` has a row (`corpusmill.schemas.tables.LEDGER`) for every document that was removed, quarantined or edited, those
that `ingest` quarantined (empty or too long) among them: documents in = kept + removed + quarantined, checked at every call.

Common arguments: `workers`: processes (0: this one); `output`: a folder or URL in which everything is kept, and where a
call that was killed goes on; the rest are parameters of the stage, as in a recipe. Raises `UserError` for a wrong
parameter or table.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.api.runs import Recipe
from corpusmill.pipeline.api.tables import Documents, mapped, parquet_tables, readers, write_input
from corpusmill.pipeline.api.tokenizer import Tokenizer, load_tokenizer
from corpusmill.pipeline.engine.document_hash import SUMMARY, read_validation_groups, split_of
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.recipe import STAGES
from corpusmill.schemas.tables import DOCUMENTS, KEPT, LEDGER, QUARANTINED, REMOVED


class Kept(NamedTuple):
    """Documents that stay, and the decisions on the others."""

    kept: pa.Table
    decisions: pa.Table


class Filtered(NamedTuple):
    """`signals`: the measured values of every document that came in, by `doc_id`."""

    kept: pa.Table
    decisions: pa.Table
    signals: pa.Table


class Deduplicated(NamedTuple):
    """`clusters`: a row per document that has copies; `quality`: name and value of what was measured of the search itself,
    such as its recall."""

    kept: pa.Table
    decisions: pa.Table
    clusters: pa.Table
    quality: pa.Table


class Divided(NamedTuple):
    """Documents to train on, and those to validate with: no two near-copies on different sides."""

    train: pa.Table
    validation: pa.Table
    summary: dict[str, Any]


class Sharded(NamedTuple):
    """A shard set at `url`, and the content of its `index.json`."""

    url: str
    index_json: dict[str, Any]


class _Out(NamedTuple):
    """What a stage's command publishes, and how many rows came in."""

    folder: Folder
    rows: int

    def kept(self) -> pa.Table:
        return mapped(parquet_tables(self.folder / "documents"), DOCUMENTS)

    def decisions(self, kept: int) -> pa.Table:
        """Rows of the ledger on which something was decided; the law is checked on them."""
        found = mapped(map(_decided, parquet_tables(self.folder / "ledger")), LEDGER)
        gone = pc.sum(pc.is_in(found["outcome"], pa.array([REMOVED, QUARANTINED]))).as_py() or 0
        if self.rows != kept + gone:
            raise AssertionError(
                f"{self.rows} documents in, but {kept} kept and {gone} removed or quarantined"
            )
        return found


def _decided(ledger: pa.Table) -> pa.Table:
    return ledger.filter(pc.or_(pc.not_equal(ledger["outcome"], KEPT), pc.is_valid(ledger["edits"])))


@contextmanager
def _run(
    name: str, documents: Documents, params: dict[str, Any], text_column: str, id_column: str | None, workers: int,
    output: str | None, stages: list[str] | None = None, **config: Any,
) -> Iterator[_Out]:  # fmt: skip
    """A stage on `documents` as its command runs it; the folder of its output, which goes if no `output` is given."""
    scratch = Path(tempfile.mkdtemp(prefix="corpusmill-"))
    url = output or str(scratch / "out")
    local = Folder(url).local
    try:
        place = Path(url) / "input" if output and local else scratch / "input"
        files, rows = write_input(documents, place, text_column)
        columns = {
            "text_column": text_column,
            "id_column": id_column,
            "min_kept": 0,
        }  # the caller sees what is left
        recipe = Recipe.of(
            {
                "name": name, "output": url, "stages": stages or STAGES[name].chain,
                "sources": {source: {"paths": [file], **columns} for source, file in files.items()},
                **config, **({name: params} if params else {}),
            }
        )  # fmt: skip
        recipe.run_stage(url, workers=workers, replace=True)
        yield _Out(Folder(url), rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _of_kept(name: str, documents: Documents, *given: Any) -> Kept:
    with _run(name, documents, *given) as out:
        kept = out.kept()
        return Kept(kept, out.decisions(len(kept)))


def ingest(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Kept:  # fmt: skip
    """Documents with ids; texts repaired, empty and overlong ones quarantined (`IngestParams`)."""
    return _of_kept("ingest", documents, params, text_column, id_column, workers, output)


def filter(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Filtered:  # fmt: skip
    """Measure signals, judge rules, keep what passes (`FilterParams`)."""
    with _run("filter", documents, params, text_column, id_column, workers, output) as out:
        kept = out.kept()
        signals = mapped(parquet_tables(out.folder / "signals"), None)
        return Filtered(kept, out.decisions(len(kept)), signals)


def signals(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> pa.Table:  # fmt: skip
    """What `filter` with the same parameters measures of every document that `ingest` keeps, by `doc_id`: to look at before
    thresholds are chosen (`FilterParams`; `rules` adds the signals that are measured only where a rule reads them)."""
    return filter(
        documents, text_column=text_column, id_column=id_column, workers=workers, output=output, **params
    ).signals


def dedup(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Deduplicated:  # fmt: skip
    """Remove exact copies and near-copies whose exact Jaccard similarity was verified (`DedupParams`)."""
    with _run("dedup", documents, params, text_column, id_column, workers, output) as out:
        kept = out.kept()
        clusters = mapped((t for t in parquet_tables(out.folder) if "survivor" in t.column_names), None)
        return Deduplicated(kept, out.decisions(len(kept)), clusters, _quality(out.folder))


def _quality(folder: Folder) -> pa.Table:
    try:
        figures = dict(_numbers(json.loads((folder / "quality.json").read())))
    except FileNotFoundError:
        figures = {}
    return pa.table(
        {"name": pa.array(figures, pa.string()), "value": pa.array(figures.values(), pa.float64())}
    )


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a JSON value, by the keys and places that lead to them."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def decontaminate(
    documents: Documents, against: str | list[str], *, text_column: str = "text", id_column: str | None = None,
    workers: int = 0, output: str | None = None, **params: Any,
) -> Kept:  # fmt: skip
    """Remove documents that hold items of evaluation sets, the files `against` (`DecontaminateParams`)."""
    params["against"] = [against] if isinstance(against, str) else against
    return _of_kept("decontaminate", documents, params, text_column, id_column, workers, output)


def redact(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Kept:  # fmt: skip
    """Replace personal data and secrets; every edit is in `decisions` (`RedactParams`). What is recognised in one of the documents
    is replaced in all of them. An `output` keeps no text as it came in, but for the input itself."""
    with _run("redact", documents, params, text_column, id_column, workers, output, retain="none") as out:
        kept = out.kept()
        return Kept(kept, out.decisions(len(kept)))


def split(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Divided:  # fmt: skip
    """Choose validation documents, copies together (`SplitParams`). Run `dedup` before it: copies are what that found."""
    with _run("split", documents, params, text_column, id_column, workers, output) as out:
        groups = read_validation_groups(out.folder)
        docs = mapped(parquet_tables(out.folder / "before/ingest/documents"), DOCUMENTS)
        mask = pa.array(split_of(docs, groups), pa.bool_())
        summary = json.loads((out.folder / SUMMARY).read())
        return Divided(docs.filter(pc.invert(mask)), docs.filter(mask), summary)


def train_tokenizer(
    documents: Documents, *, text_column: str = "text", id_column: str | None = None, workers: int = 0,
    output: str | None = None, **params: Any,
) -> Tokenizer:  # fmt: skip
    """Train a byte-level tokenizer on all documents (`TokenizerParams`)."""
    everything = {"validation_share": 0.0, "min_documents": 0}
    with _run(
        "tokenizer", documents, params, text_column, id_column, workers, output, split=everything
    ) as out:
        stats = json.loads((out.folder / "stats.json").read())
        return Tokenizer((out.folder / "tokenizer.json").read(), stats["eos_token"], "tokenizer", stats)


def encode(
    documents: Documents, tokenizer: Tokenizer | str | Path, *, text_column: str = "text",
    id_column: str | None = None, eos: bool = False,
) -> pa.Table:  # fmt: skip
    """`doc_id`, `source_id` and `tokens` (a list of unsigned integers) of every document that `ingest` keeps; with `eos`
    the token that ends a document at the end of each."""
    bpe = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)
    docs = ingest(documents, text_column=text_column, id_column=id_column).kept

    def tables() -> Iterator[pa.Table]:
        for batch in docs.to_batches(max_chunksize=4096):
            tokens = bpe.encode(batch["text"])
            if eos:
                offsets = np.asarray(tokens.offsets)
                ids = np.insert(np.asarray(tokens.values), offsets[1:], bpe.eos_id)
                tokens = pa.LargeListArray.from_arrays(
                    pa.array(offsets + np.arange(len(offsets))), pa.array(ids)
                )
            yield pa.table({"doc_id": batch["doc_id"], "source_id": batch["source_id"], "tokens": tokens})

    return mapped(tables(), None)


def shard(
    documents: Documents, output: str | Path, tokenizer: Tokenizer | str | Path, *, text_column: str = "text",
    id_column: str | None = None, workers: int = 0, split: dict[str, Any] | None = None, **params: Any,
) -> Sharded:  # fmt: skip
    """Write WebDataset token shards to the folder or URL `output`, a train and a validation part (`ShardParams`; `split`:
    `SplitParams`)."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as scratch:
        path = str(tokenizer)
        if isinstance(tokenizer, Tokenizer):
            path = f"{scratch}/tokenizer.json"
            tokenizer.save(path)
        config: dict[str, Any] = {"tokenizer": {"path": path}, **({"split": split} if split else {})}
        with _run("shard", documents, params, text_column, id_column, workers, str(output), **config) as out:
            return Sharded(out.folder.url, json.loads((out.folder / "index.json").read()))


def signatures(
    documents: Documents, *, text_column: str = "text", **params: Any
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """MinHash signatures [documents, num_perm] of texts, in their order (`DedupParams`): equal to those of
    `datasketch.MinHash(scheme="affine32")` for the same shingles."""
    from corpusmill.pipeline.text.buffers import one_array
    from corpusmill.pipeline.text.shingling import Shingling

    checked = validate(DedupParams, params, "signatures")
    shingling = Shingling(checked, checked.num_perm)
    found = []
    for reader in readers(documents):
        if text_column not in reader.schema.names:
            raise UserError(
                f"documents: no column '{text_column}' (columns: {', '.join(reader.schema.names)})"
            )
        for batch in reader:
            texts = one_array(pa.chunked_array([batch[text_column]]).cast(pa.large_string()))
            found.append(shingling.sign(texts, np.arange(len(texts), dtype=np.int64)).signatures)
    return np.concatenate(found) if found else np.empty((0, checked.num_perm), np.uint32)
