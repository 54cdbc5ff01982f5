"""The index of what is looked for: built once by `prepare`, published, loaded by every worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import parse, whole
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.evalsets import EvalFile
from corpusmill.pipeline.decontaminate.items import read_file
from corpusmill.pipeline.decontaminate.near import near_tables, seeds_of
from corpusmill.pipeline.decontaminate.near_kernels import Seeds
from corpusmill.pipeline.decontaminate.ngram_kernels import Table, fill, set_bits
from corpusmill.pipeline.decontaminate.units import Units, coverage, make_units, prefix_of
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table, read_table
from corpusmill.pipeline.engine.shuffle import distinct, starts_of
from corpusmill.schemas.decontamination import (
    ANSWERS,
    GRAMS,
    ITEMS,
    NEAR_UNITS,
    NOTHING_LEFT,
    RECORDS,
    SEEDS,
    TOO_SHORT,
    UNITS,
    EvaluationIndex,
    FileReading,
    SetCounts,
)
from corpusmill.schemas.stages import PARTS, DecontaminateParams

RECORD = "index/index.json"
BITS_PER_KEY = 16  # of the bit maps: one look in sixteen that should not is let through

TABLES = {
    "items": ITEMS, "records": RECORDS, "units": UNITS, "grams": GRAMS, "answers": ANSWERS, "near_units": NEAR_UNITS,
    "seeds": SEEDS,
}  # fmt: skip


@dataclass(frozen=True)
class Index:
    """An index in memory: about 50 bytes a gram and 40 a seed in the kernels' arrays."""

    items: pa.Table
    records: pa.Table
    units: pa.Table
    table: Table
    seeds: Seeds
    unit_grams: npt.NDArray[np.int64]
    unit_covered: npt.NDArray[np.int64]

    @property
    def bytes_per_gram(self) -> float:
        """Memory of the arrays that the kernels take, per gram."""
        return _bytes(self.table) / max(len(self.table.keys), 1)

    @property
    def bytes(self) -> int:
        """Memory of all of them."""
        return _bytes(self.table) + _bytes(self.seeds)


def _bytes(arrays: tuple[Any, ...]) -> int:
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def build(
    folder: Folder, key: str, sources: Sequence[EvalFile], params: DecontaminateParams
) -> EvaluationIndex:
    """Read the evaluation files and publish their index below `folder`, unless it is there with this `key`.

    Raises `UserError` for a file that cannot be read, and when nothing in any of them can be looked for.
    """
    known = load_record(folder)
    if known is not None and known.key == key and whole(folder, known.files.values()):
        return known
    readings = [read_file(source, place, params.fields) for place, source in enumerate(sources)]
    made = make_units([item for items, _ in readings for item in items], params)
    tables, sets = _tables(made, sources, params)
    items = sum(counts.items for counts in sets.values())
    if items == sum(counts.unused for counts in sets.values()):
        raise UserError(
            f"decontaminate.against: none of {items} items can be looked for: all shorter than {params.min_words}"
            f" words, without letters, or boilerplate (more than {params.max_items} items share each n-gram)"
        )
    files = {name: publish_table(folder, f"index/{name}.parquet", table) for name, table in tables.items()}
    read = [
        FileReading(file=source.file.name, roles=how.roles, unknown=list(how.unknown), texts=how.texts)
        for source, (_, how) in zip(sources, readings, strict=True)
    ]
    record = EvaluationIndex(key=key, read=read, files=files, sets=sets)
    publish_bytes(folder, RECORD, (record.model_dump_json(indent=1) + "\n").encode())
    return record


def load_record(folder: Folder) -> EvaluationIndex | None:
    """The record of a published index, or None: a missing or foreign file is no index."""
    return parse(EvaluationIndex, folder / RECORD)


def _tables(
    made: Units, sources: Sequence[EvalFile], params: DecontaminateParams
) -> tuple[dict[str, pa.Table], dict[str, SetCounts]]:
    """The tables of the index, and what each set gave. Equal runs are one gram; of those in too many units, none."""
    order = np.lexsort((made.run_place, made.run_unit, made.run_length, made.run_check, made.run_key))
    runs = np.empty(len(order), [("key", np.uint64), ("check", np.uint64), ("length", np.uint8)])
    columns = (made.run_key, made.run_check, made.run_length)
    runs["key"], runs["check"], runs["length"] = (column[order] for column in columns)
    owner, place = made.run_unit[order], made.run_place[order]
    new = starts_of(runs)
    gram = np.cumsum(new) - 1
    pairs = starts_of(gram, owner)
    gram, owner, place = gram[pairs], owner[pairs], place[pairs]
    common = np.bincount(gram, minlength=0) > params.max_items
    sets = np.array(made.sets, object)
    boilerplate = Counter(sets[owner[starts_of(gram) & common[gram]]])
    alive = ~common[gram] if len(gram) else np.zeros(0, bool)
    unique_runs = runs[new][~common] if len(runs) else runs
    gram, owner = np.unique(gram[alive], return_inverse=True)[1].reshape(-1), owner[alive]
    ngrams = Counter(sets[owner[starts_of(gram)]])
    place = place[alive]
    unit_grams = np.bincount(owner, minlength=len(sets))
    covered = coverage(owner, place, unique_runs["length"][gram], len(sets))
    used, long_enough = np.zeros(len(made.items), bool), np.zeros(len(made.items), bool)
    for members in made.members:
        long_enough[members] = True
    near, findable = near_tables(made, params)
    for unit in distinct(np.r_[np.flatnonzero(unit_grams), findable]):
        used[made.members[unit]] = True
    sizes = np.bincount(gram, minlength=len(unique_runs))
    bounds = np.r_[0, np.cumsum(sizes)].astype(np.int32)
    tables = {
        **near,
        "items": pa.Table.from_pylist(
            [
                {
                    "set": item.set, "id": item.id, "file": sources[item.file].file.name, "record": item.record, "used": ok,
                    "why": None if ok else NOTHING_LEFT if has_unit else TOO_SHORT,
                }
                for item, ok, has_unit in zip(made.items, used.tolist(), long_enough.tolist(), strict=True)
            ],
            schema=ITEMS,
        ),
        "records": pa.Table.from_pylist(
            [
                {
                    "item": number, "id": one.id, "file": sources[one.file].file.name, "record": one.record,
                    "question": one.question_hash,
                }
                for number, records in enumerate(made.records)
                for one in records
            ],
            schema=RECORDS,
        ),
        "units": pa.table(
            [made.sets, [PARTS[part] for part in made.parts], made.members, made.words, unit_grams, covered],
            schema=UNITS,
        ),
        "grams": pa.table(
            [
                unique_runs["key"], unique_runs["check"], unique_runs["length"],
                pa.ListArray.from_arrays(pa.array(bounds), pa.array(owner.astype(np.uint32))),
                pa.ListArray.from_arrays(pa.array(bounds), pa.array(place.astype(np.uint32))),
            ],
            schema=GRAMS,
        ),
        "answers": pa.Table.from_pylist(
            [
                {"unit": unit, "key": key, "check": check, "length": words}
                for unit, key, check, words in made.answers
            ]
            + [
                {"unit": None, "key": int(key), "check": 0, "length": prefix_of(params)}
                for key in made.prefix_keys
            ],
            schema=ANSWERS,
        ),
    }  # fmt: skip
    items = Counter(item.set for item in made.items)
    unused = Counter(item.set for item, ok in zip(made.items, used.tolist(), strict=True) if not ok)
    counts = {
        name: SetCounts(
            items=items[name], unused=unused[name], ngrams=ngrams[name], boilerplate=boilerplate[name],
            no_letter=made.wordless[name],
        )
        for name in sorted(items)
    }  # fmt: skip
    return tables, counts


def load(folder: Folder, key: str, params: DecontaminateParams) -> Index:
    """The published index with this key, once per process."""
    return _load(folder, key, params.model_dump_json())


@lru_cache(maxsize=2)
def _load(folder: Folder, key: str, params_json: str) -> Index:
    params = DecontaminateParams.model_validate_json(params_json)
    record = load_record(folder)
    if record is None or record.key != key:
        raise UserError(f"{folder}/{RECORD}: not the index of this recipe; run the stage again")
    tables = {
        name: read_table(folder / file.path, file.xxh3).cast(TABLES[name])
        for name, file in record.files.items()
    }
    units = tables["units"]
    return Index(
        tables["items"],
        tables["records"],
        units,
        table_of(tables, params),
        seeds_of(tables),
        units["grams"].to_numpy(),
        units["covered"].to_numpy(),
    )


def table_of(tables: dict[str, pa.Table], params: DecontaminateParams) -> Table:
    """The tables as the kernels take them. Every array is a copy, since Numba recompiles for arrays of another layout
    (those of Arrow are read-only, but for empty ones)."""
    grams = tables["grams"].combine_chunks()
    keys = _own(grams["key"], np.uint64)
    lengths = _own(grams["length"], np.uint8)
    slot_bits = max(4, int(2 * len(keys) - 1).bit_length())
    slots = np.full(1 << slot_bits, -1, np.int32)
    fill(keys, slots, np.uint64(64 - slot_bits))
    long_bits, long_down = _bit_map(keys[lengths == params.ngram])
    extra = tables["answers"].combine_chunks()
    prefixes = extra.filter(pc.is_null(extra["unit"]))
    answers = extra.filter(pc.is_valid(extra["unit"]))
    prefix_bits, prefix_down = _bit_map(_own(prefixes["key"], np.uint64))
    short_bits, short_down = _bit_map(keys[lengths < params.ngram])
    units = grams["units"].combine_chunks()
    per_unit = np.bincount(answers["unit"].to_numpy().astype(np.int64), minlength=len(tables["units"]))
    return Table(
        keys=keys, checks=_own(grams["check"], np.uint64), lengths=lengths,
        slots=slots, down=np.uint64(64 - slot_bits),
        ngram_bits=long_bits, ngram_down=long_down, prefix_bits=prefix_bits, prefix_down=prefix_down,
        short_bits=short_bits, short_down=short_down,
        ngram=params.ngram, prefix=prefix_of(params), shorts=len(prefixes) > 0,
        gram_units=np.r_[0, np.cumsum(pc.list_value_length(units).to_numpy())].astype(np.int64),
        units=_own(pc.list_flatten(units), np.uint32), places=_own(pc.list_flatten(grams["places"]), np.uint32),
        unit_answers=np.r_[0, np.cumsum(per_unit)].astype(np.int64),
        answer_keys=_own(answers["key"], np.uint64), answer_checks=_own(answers["check"], np.uint64),
        answer_lengths=_own(answers["length"], np.uint8), answer_within=params.answer_within,
    )  # fmt: skip


def _own(column: Any, dtype: Any) -> npt.NDArray[Any]:
    """A column's values in memory of our own."""
    return np.array(column.to_numpy(), dtype)


def _bit_map(keys: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], np.uint64]:
    """(bits, shift): a map with the upper bits of each key set."""
    size = max(6, int(BITS_PER_KEY * len(keys)).bit_length())
    bits = np.zeros(1 << (size - 6), np.uint64)
    down = np.uint64(64 - size)
    set_bits(keys, bits, down)
    return bits, down
