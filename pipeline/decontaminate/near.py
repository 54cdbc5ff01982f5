"""What is found with words changed, left out or put between: near units, their seeds, and the tables of both in the index.

A near unit is a unit of `NEAR_LEAST` words or more, or texts of one item in a row: a question that is short by itself
after the end of its passage, before its right answer, and before its choices, bare and with letters. Of these, too, most words must be found in
order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.decontaminate.near_kernels import COVER, Seeds, set_pairs
from corpusmill.pipeline.decontaminate.ngram_kernels import fill, keys_and_checks
from corpusmill.pipeline.decontaminate.units import Units, coverage, prefix_of
from corpusmill.pipeline.engine.shuffle import distinct, starts_of
from corpusmill.pipeline.text.buffers import I64, U64
from corpusmill.schemas.decontamination import NEAR_UNITS, SEEDS
from corpusmill.schemas.stages import DecontaminateParams

SEED_UNITS = (
    64  # near units that may share a seed: sets made from templates have many, and alignment tells them apart
)
FEW = 2  # items that may share words, however few there are, before these are a template
BITS_PER_KEY = 16  # of the bit map: with two bits a key, one look in a hundred that should not is let through


def near_tables(made: Units, params: DecontaminateParams) -> tuple[dict[str, pa.Table], I64]:
    """`near_units` and `seeds` of the index, and the units that these can find.

    Runs without a letter, or of more than `SEED_UNITS` near units, are no seeds. Words in runs that more than `max_items` items share,
    or a quarter of all if that is less, are a template; the others are a near unit's own. Of a question after its passage, or before it, the words of the question are that.
    """
    prefix = prefix_of(params)
    units = made.near if params.near_share else []
    counts = np.array([unit.words for unit in units], np.int64)
    firsts = np.array([unit.first for unit in units], np.int64)
    starts = np.r_[0, np.cumsum(counts)]
    # Every word's place among all words, and in its near unit.
    inside = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    place = np.repeat(firsts, counts) + inside
    seeding = inside + prefix <= np.repeat(counts, counts)
    seeding[seeding] = made.lettered[place[seeding] + prefix] > made.lettered[place[seeding]]
    owner, at = np.repeat(np.arange(len(units)), counts)[seeding], inside[seeding]
    keys = _keys(made.hashes, place[seeding], prefix)
    order = np.lexsort((at, owner, keys))
    keys, owner, at = keys[order], owner[order], at[order]
    new = starts_of(keys)
    group = np.cumsum(new) - 1
    items = np.array([made.members[unit.unit][0] for unit in units], np.int64)
    own = np.ones(len(place), bool)
    # Of few items a quarter is many: instructions that all tasks of a small set begin with.
    most = min(params.max_items, max(FEW, len(np.unique(items)) // 4))
    shared = _sharing(group, items[owner])[group] > most
    for step in range(prefix):
        own[starts[owner[shared]] + at[shared] + step] = False
    for number, unit in enumerate(units):
        if unit.core is not None:
            own[starts[number] : starts[number + 1]] = False
            own[starts[number] + unit.core[0] : starts[number] + unit.core[1]] = True
    # The same exercise with other numbers is another item: of two numbers and more, half must be found.
    belongs = np.repeat(np.arange(len(units)), counts)
    numbers = own & (made.lettered[place + 1] == made.lettered[place])
    several = np.bincount(belongs[numbers], minlength=len(units)) > 1
    own = np.where(several[belongs], numbers, own)
    kept = _sharing(group, owner)[group] <= SEED_UNITS
    keys, owner, at = keys[kept], owner[kept], at[kept]
    by_unit = np.lexsort((at, owner))
    covered = coverage(owner[by_unit], at[by_unit], np.full(len(at), prefix), len(units))
    findable = np.array([unit.unit for unit in units], np.int64)[covered >= COVER * counts]
    # With what an n-gram or a short item begins, whether it is a seed or not.
    others = distinct(np.r_[_keys(made.hashes, made.run_first, prefix), made.prefix_keys])
    bounds = pa.array(starts.astype(np.int32))
    tables = {
        "near_units": pa.table(
            [
                pa.array([unit.unit for unit in units], pa.uint32()),
                pa.ListArray.from_arrays(bounds, (made.hashes[place] >> np.uint64(48)).astype(np.uint16)),
                pa.ListArray.from_arrays(bounds, pa.array(own)),
            ],
            schema=NEAR_UNITS,
        ),
        "seeds": pa.table(
            [
                np.r_[keys, others],
                pa.concat_arrays([pa.array(owner.astype(np.uint32)), pa.nulls(len(others), pa.uint32())]),
                np.r_[at, np.zeros(len(others), np.int64)].astype(np.uint32),
            ],
            schema=SEEDS,
        ),
    }  # fmt: skip
    return tables, findable


def _sharing(group: I64, owner: I64) -> I64:
    """int64[groups]: how many different owners each group has."""
    order = np.lexsort((owner, group))
    group, owner = group[order], owner[order]
    return np.bincount(group[starts_of(group, owner)]).astype(np.int64)


def _keys(hashes: U64, starts: I64, length: int) -> U64:
    keys: U64 = keys_and_checks(hashes, starts, np.full(len(starts), length))[0]
    return keys


def seeds_of(tables: dict[str, pa.Table]) -> Seeds:
    """The tables as the kernels take them."""
    units, rows = tables["near_units"].combine_chunks(), tables["seeds"].combine_chunks()
    keys = _own(rows["key"], np.uint64)
    held = len(rows) - rows["near_unit"].null_count  # those that only begin something come last
    new = np.flatnonzero(starts_of(keys[:held]))
    seeds = keys[new]
    slot_bits = max(4, int(2 * len(seeds) - 1).bit_length())
    slots = np.full(1 << slot_bits, -1, np.int32)
    fill(seeds, slots, np.uint64(64 - slot_bits))
    size = max(7, int(BITS_PER_KEY * len(keys)).bit_length())
    bits, down = np.zeros(1 << (size - 6), np.uint64), np.uint64(64 - (size - 6))
    set_pairs(keys, bits, down)
    words = units["words"].combine_chunks()
    return Seeds(
        bits=bits, down=down, keys=seeds.copy(), slots=slots, slots_down=np.uint64(64 - slot_bits),
        bounds=np.r_[new, held].astype(np.int64),
        units=_own(rows["near_unit"].slice(0, held), np.uint32), places=_own(rows["place"].slice(0, held), np.uint32),
        words=_own(pc.list_flatten(words), np.uint16),
        starts=np.r_[0, np.cumsum(pc.list_value_length(words).to_numpy())].astype(np.int64),
        unit=_own(units["unit"], np.uint32), own=np.array(pc.list_flatten(units["own"]).to_numpy(zero_copy_only=False), np.bool_),
    )  # fmt: skip


def _own(column: Any, dtype: Any) -> npt.NDArray[Any]:
    """A column's values in memory of our own."""
    return np.array(column.to_numpy(), dtype)
