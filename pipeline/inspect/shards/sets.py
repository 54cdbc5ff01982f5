"""A whole shard set: its lists against each other, its tars, and what they hold together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.takedown_log import STAGING, read_log, under_way
from corpusmill.pipeline.inspect.damage import read_present, read_regular, reported
from corpusmill.pipeline.inspect.shards.contents import IDS, DocumentHashes, joined
from corpusmill.pipeline.inspect.shards.tar import TarReport, TarTask, check_tar
from corpusmill.pipeline.inspect.shards.text import TextTask, check_text
from corpusmill.pipeline.shard.read import read_listed, read_set
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import INDEX, TAKEDOWNS, Index, SetEntry, ShardIndex, ShardSet, TextIndex

AT_ONCE = 256  # tasks given to the scheduler at once
SAMPLE = 400  # documents that are decoded, unless another number is given


@dataclass
class ShardsChecked:
    """What was read, what is wrong, and which documents are where (16 bytes each)."""

    problems: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    documents: int = 0
    limit: int = 0  # the limit of the hash by which documents were chosen
    tokens_sample: list[DocumentHashes] = field(default_factory=list)
    texts_sample: list[DocumentHashes] = field(default_factory=list)
    validation: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, IDS))
    taken: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, IDS))
    checked: bool = False  # the tars were looked at
    tokenizer: tuple[Folder, int] | None = None  # the file, and the token that ends documents

    @property
    def decoded(self) -> int:
        """Documents whose tokens or texts were turned into a hash of the text."""
        return sum(len(sample.ids) for sample in (*self.tokens_sample, *self.texts_sample))


@dataclass(frozen=True)
class _Held:
    """A (source, split) whose lists are right."""

    folder: Folder
    entry: SetEntry
    index: Index


def verify_shards(folder: Folder) -> list[str]:
    """Problems of a folder of shards (the one with the `ShardSet`), each a line that begins with the file; an
    empty list if there is none."""
    return check_shards(folder).problems


def check_shards(
    folder: Folder, scheduler: Scheduler | None = None, published: Sequence[PublishedFile] = (),
    sample: int | None = SAMPLE,
) -> ShardsChecked:  # fmt: skip
    """Check a folder of shards. `published`: what the stage's manifest says of its files. `sample`: how many
    documents are decoded, None for all.

    A tar is read once, a member at a time. In memory lie the ids of the documents of one source and of all
    validation (16 bytes each), and 32 bytes for each document that is decoded.
    """
    result = ShardsChecked()
    files = {file.path: file for file in published}
    top = _top(folder, files, result)
    if top is None:
        return result
    held = [one for entry in top.entries if (one := _index(folder, entry, top, result)) is not None]
    result.documents = sum(e.ndocs for e in top.sets) or sum(e.ndocs for e in top.texts)
    share = 1.0 if sample is None else min(1.0, sample / max(1, result.documents))
    result.limit = int(share * 2**64)
    result.checked = True
    by_source = itertools.groupby(held, key=lambda one: (isinstance(one.index, TextIndex), one.entry.source))
    owners = {shard.sha256: f"{one.folder}/{shard.url}" for one in held for shard in one.index.shardlist}
    for _, mine in by_source:
        _source(folder, list(mine), files, owners, scheduler, result)
    _strays(folder, {entry.place for entry in top.entries}, held, result)
    return result


def _top(folder: Folder, files: dict[str, PublishedFile], result: ShardsChecked) -> ShardSet | None:
    """The set's own list, if it can be trusted."""
    with reported(result.problems, folder / INDEX):
        request = under_way(folder, read_present)
        if request is not None:
            result.problems.append(in_between(folder, request))
            return None
        data = read_regular(folder / INDEX)
        top = read_set(folder, data)
        listed = files.get(INDEX)
        if listed is not None and checksum(data) != listed.xxh3:
            result.problems.append(f"{folder / INDEX}: checksum differs from the published one")
            return None
        result.taken = np.frombuffer(b"".join(read_log(folder, read_present).taken), IDS)
        with reported(result.problems, folder / top.tokenizer):
            if checksum(read_regular(folder / top.tokenizer)) != top.tokenizer_xxh3:
                raise WorkError(f"{folder / top.tokenizer}: checksum differs")
            result.tokenizer = (folder / top.tokenizer, top.eos_id)
        return top
    return None


def in_between(folder: Folder, request: str) -> str:
    """The problem of a set that is neither the old nor the new one."""
    return f"{folder / request}: a takedown was begun and not finished: give the same command again"


def _index(folder: Folder, entry: SetEntry, top: ShardSet, result: ShardsChecked) -> _Held | None:
    """The list of a (source, split), if it is the one that the set names."""
    file = folder / entry.index
    with reported(result.problems, file):
        data = read_regular(file)
        index = read_listed(folder, entry, data)
        if checksum(data) != entry.index_xxh3:
            same = (index.source, index.split) == (entry.source, entry.split)
            other = "" if same else f"; it is that of {index.name}"
            raise WorkError(
                f"{file}: checksum differs from the one in {folder / INDEX}{other}; its tars were not checked"
            )
        result.problems += [f"{file}: {problem}" for problem in _totals(index, entry, top)]
        return _Held(file.parent, entry, index)
    return None


def _totals(index: Index, entry: SetEntry, top: ShardSet) -> Iterable[str]:
    """Where the list of a (source, split) disagrees with its own shards or with the set."""
    for name, total in index.totals(index.shardlist).items():
        own, of_set = getattr(index, name), getattr(entry, name)
        if not total == own == of_set:
            yield f"{name}: shards add up to {total}, it says {own}, the set {of_set}"
    ours: dict[str, Any] = {"source": entry.source, "split": entry.split}
    if isinstance(index, ShardIndex):
        ours |= {name: getattr(top, name) for name in ("vocab_size", "eos_id", "dtype", "tokenizer_xxh3")}
        for shard in index.shardlist:
            counts = (len(shard.blocks), sum(block.ntokens for block in shard.blocks))
            if counts != (shard.nsamples, shard.ntokens):
                yield f"{shard.url}: blocks and tokens {counts}, it says {(shard.nsamples, shard.ntokens)}"
            long = [b.key for b in shard.blocks[:-1] if b.ntokens != index.block_tokens]
            if long:
                yield f"{shard.url}: {long[0]}: not of {index.block_tokens} tokens, and not the last block"
    for name, value in ours.items():
        if getattr(index, name) != value:
            yield f"{name} {getattr(index, name)}, the set says {value}"


def _source(
    folder: Folder, mine: list[_Held], files: dict[str, PublishedFile], owners: dict[str, str],
    scheduler: Scheduler | None, result: ShardsChecked,
) -> None:  # fmt: skip
    """The tars of a source: no document may be there twice, in one split or in both."""
    splits: dict[str, npt.NDArray[np.void]] = {}
    for one in mine:
        tasks = _tasks(one, files, result)
        check = check_text if isinstance(one.index, TextIndex) else check_tar
        reports: list[TarReport] = []
        for start in range(0, len(tasks), AT_ONCE):
            some = tasks[start : start + AT_ONCE]
            sizes = [task.shard.filesize for task in some]
            reports += on_all(scheduler, check, some, f"verify: {one.index.name}", sizes)
        for task, report in zip(tasks, reports, strict=True):
            _take(task, report, owners, result)
        whole = [r.ids for task, r in zip(tasks, reports, strict=True) if r.sha256 == task.shard.sha256]
        ids = splits[one.entry.split] = joined(whole)  # what a damaged tar holds is not believed
        found, times = np.unique(ids, return_counts=True)
        file, gone = f"{folder / one.entry.index}", np.intersect1d(found, result.taken)
        _report(result, file, found[times > 1], "are there twice")
        _report(result, file, gone, f"stand in {TAKEDOWNS} as taken down, and are there")
        if one.entry.split == "validation":
            result.validation = np.union1d(result.validation, ids)
    if len(splits) == 2:
        both = np.intersect1d(splits["train"], splits["validation"])
        _report(result, f"{folder / mine[0].entry.index}", both, "are in both splits, train and validation")


def on_all(
    scheduler: Scheduler | None,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    label: str,
    sizes: list[int],
) -> list[Any]:
    """What `work` makes of each item, by the scheduler's workers or, without one, here."""
    return scheduler.map(work, items, label, sizes) if scheduler else list(map(work, items))


def _tasks(one: _Held, files: dict[str, PublishedFile], result: ShardsChecked) -> list[Any]:
    limit, decodes = result.limit, result.tokenizer is not None
    published = {shard.url: files.get(one.entry.path(shard.url)) for shard in one.index.shardlist}
    if isinstance(one.index, TextIndex):
        source = one.entry.source
        return [TextTask(one.folder, source, s, limit, published[s.url]) for s in one.index.shardlist]
    bare = one.index.model_copy(update={"shardlist": []})
    return [TarTask(one.folder, bare, s, limit, published[s.url], decodes) for s in one.index.shardlist]


def _take(task: Any, report: TarReport, owners: dict[str, str], result: ShardsChecked) -> None:
    """Add what a tar's check found to the whole."""
    file = f"{task.folder / task.shard.url}"
    owner = owners.get(report.sha256, file)
    if report.sha256 != task.shard.sha256 and owner != file:  # it says more than what follows from it
        result.problems.append(f"{file}: holds the bytes of {owner}: swapped")
        result.problems += [line for line in report.problems if line.startswith(f"{file}.idx")]
    else:
        result.problems += report.problems
    result.files += 1
    result.bytes += report.bytes
    sample = result.texts_sample if isinstance(task, TextTask) else result.tokens_sample
    sample.append(report.sample)


def _report(result: ShardsChecked, file: str, ids: npt.NDArray[np.void], what: str) -> None:
    if len(ids):
        result.problems.append(f"{file}: {len(ids)} documents {what}, first {ids[0].tobytes().hex()}")


def _strays(folder: Folder, lists: set[str], held: list[_Held], result: ShardsChecked) -> None:
    """Report tars that no list names, except where a list could not be read."""
    known = {one.entry.path(shard.url) for one in held for shard in one.index.shardlist}
    unread = lists - {one.entry.place for one in held}
    for found in folder.list():
        stem = found.path.removesuffix(".idx")
        place = found.path.rpartition("/")[0]
        staged = place.split("/")[0] == STAGING  # of a takedown that was never decided
        if stem.endswith(".tar") and not staged and stem not in known and place not in unread:
            result.problems.append(f"{folder / found.path}: in no index")
