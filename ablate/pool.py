"""The texts of all arms: what is held out of every one of them, and each arm's shards. Stages that an arm shares with the whole recipe
are run once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from corpusmill.ablate.arms import Arm, shared_stages, upto_shards, with_held_out
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.api.runs import Finished, Recipe
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.shards import Shards, open_shards
from corpusmill.train.evaluate.baselines import STRICT, all_blocks

if TYPE_CHECKING:
    from corpusmill import schemas
    from corpusmill.train.data.reader import BlockData
    from corpusmill.train.data.shards import Source

BASE, HELD_OUT, SETS, ARMS = "base", "held-out", "sets", "arms"


class Pool(NamedTuple):
    """`held`: the held-out splits by source, and `sets`: those of the user's own by name; `arms`: the shards of each arm and what its run
    counted."""

    held: dict[str, Source]
    sets: dict[str, Source]
    arms: dict[str, tuple[Shards, Finished]]


def make(
    recipe: schemas.recipe.Recipe, arms: list[Arm], sets: Mapping[str, str], folder: Path, workers: int | None,
    log: Callable[[str], None],
) -> Pool:  # fmt: skip
    """Run the whole recipe, hold its validation texts out, and run every arm without them and without the texts of `sets` (name -> files).
    What a killed call left is continued. Raises `UserError` where nothing is held out, and what a run raises."""
    base = folder / BASE
    whole = upto_shards(recipe).model_copy(update={"output": str(base)})
    log("the whole recipe, for the tokenizer and the held-out texts")
    Recipe(whole).run(workers=workers)
    shards = open_shards(str(base / "shards"))
    held = {name: source for name, source in shards.validation.items() if source.index.ntokens}
    if not held:
        raise UserError(
            "split: nothing is held out, and nothing can be measured: set split.validation_share to 0.03"
        )
    texts, own = folder / HELD_OUT, _own_sets(sets, folder, workers)
    for name, source in {**held, **own}.items():
        _write(source, shards.tokenizer(), texts / f"{name}.jsonl")
    found: dict[str, tuple[Shards, Finished]] = {}
    made: dict[str, tuple[Shards, Finished]] = {}
    for number, arm in enumerate(arms):
        key = arm.recipe.model_dump_json()
        if key not in made:  # the control is the whole recipe
            log(f"arm {number + 1} of {len(arms)}: {arm.name}")
            ready = with_held_out(arm, str(texts / "*.jsonl"), str(base / "shards/tokenizer.json"))
            place = folder / ARMS / f"{number:02d}"
            shared = {name: Folder(str(base / name)) for name in shared_stages(arm, arms[0].recipe)}
            ready = ready.model_copy(update={"output": str(place)})
            done = Recipe(ready).run(workers=workers, folders=shared)
            made[key] = open_shards(str(place / "shards")), done
        found[arm.name] = made[key]
    return Pool(held, own, found)


def _own_sets(sets: Mapping[str, str], folder: Path, workers: int | None) -> dict[str, Source]:
    """The documents of the user's own held-out files as token shards of the same tokenizer, by the name of the set: read as sources of a recipe are,
    and neither filtered nor changed."""
    if not sets:
        return {}
    place = folder / SETS
    given = {
        "name": "held-out", "output": str(place), "stages": ["ingest", "split", "tokenizer", "shard"],
        "sources": {name: {"paths": [path], "min_kept": 0} for name, path in sets.items()},
        "split": {"validation_share": 0, "min_documents": 0},
        "tokenizer": {"path": str(folder / BASE / "shards/tokenizer.json")},
    }  # fmt: skip
    Recipe.of(given).run(workers=workers)
    return open_shards(str(place / "shards")).train


def _write(source: Source, tokenizer: bytes, file: Path) -> None:
    """The documents of a split as JSON Lines, decoded from its tokens."""
    from tokenizers import Tokenizer

    decode = Tokenizer.from_str(tokenizer.decode()).decode
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": decode(ids)}, ensure_ascii=False) for ids in documents(source).values()]
    data = "".join(f"{line}\n" for line in lines)
    if not file.exists() or file.read_text(encoding="utf-8") != data:
        file.write_text(data, encoding="utf-8")


def documents(source: Source) -> dict[str, list[int]]:
    """The tokens of each document of a split, by its id, without the ends of documents."""
    found: dict[str, list[int]] = {}
    for names, block in blocks_of(source):
        for name, tokens in zip(names, np.split(block.tokens, block.starts[1:]), strict=True):
            kept = tokens[:-1] if len(tokens) and tokens[-1] == source.index.eos_id else tokens
            found.setdefault(name, []).extend(kept.tolist())
    return found


def blocks_of(source: Source) -> Iterator[tuple[list[str], BlockData]]:
    """The blocks of a split in their order, each with the ids of the documents that its parts are of."""
    with closing(Blocks([source], STRICT)) as members:
        for number, block in enumerate(all_blocks(source)):
            yield members.documents((0, number)).doc_ids, block
