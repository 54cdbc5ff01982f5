"""`verify` for shards: every checksum, count and offset computed again, every problem named."""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter

import numpy as np
from pydantic import ValidationError

from pipeline.shard.read import BlockData, decode_block, members, read_index, read_set
from pipeline.shard.tar import energon_index, member_header
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.shards import Block, Shard, ShardIndex
from schemas.storage import Folder


def verify_shards(folder: Folder) -> list[str]:
    """Problems of a folder of shards (the one with the `ShardSet`), each a line that begins with the file; an
    empty list if there is none. One tar is in memory at a time."""
    problems: list[str] = []
    try:
        shard_set = read_set(folder)
        if checksum((folder / shard_set.tokenizer).read()) != shard_set.tokenizer_xxh3:
            problems.append(f"{folder / shard_set.tokenizer}: checksum differs")
    except (FileNotFoundError, WorkError) as error:
        return [str(error)]
    listed = {"index.json", shard_set.tokenizer}
    for entry in shard_set.sets:
        file = folder / entry.index
        listed.add(entry.index)
        try:
            data = file.read()
            if checksum(data) != entry.index_xxh3:
                problems.append(f"{file}: checksum differs from the one in {folder / 'index.json'}")
            index = read_index(file, data)
        except (FileNotFoundError, WorkError) as error:
            problems.append(str(error))
            continue
        listed |= {
            f"{entry.index.rpartition('/')[0]}/{s.url}{end}" for s in index.shardlist for end in ("", ".idx")
        }
        problems += _totals(
            str(file), index, (entry.ntokens, entry.ndocs, entry.text_bytes), shard_set.vocab_size
        )
        problems += verify_index(file.parent, index)
    for found in folder.list():
        if found.path.endswith((".tar", ".tar.idx")) and found.path not in listed:
            problems.append(f"{folder / found.path}: in no index")
    return problems


def verify_index(folder: Folder, index: ShardIndex) -> list[str]:
    """Problems of the tars of one (source, split); `folder` is that of the index."""
    problems: list[str] = []
    owners = {shard.sha256: shard.url for shard in index.shardlist}
    seen: Counter[str] = Counter()
    for shard in index.shardlist:
        file = folder / shard.url
        try:
            data = file.read()
        except (FileNotFoundError, WorkError) as error:
            problems.append(str(error))
            continue
        digest = hashlib.sha256(data).hexdigest()
        if digest != shard.sha256 and digest in owners:
            problems.append(f"{file}: holds the bytes of {owners[digest]}: swapped")
            continue
        if len(data) < shard.filesize:
            problems.append(f"{file}: truncated: {len(data)} bytes, the index says {shard.filesize}")
        elif len(data) > shard.filesize:
            problems.append(f"{file}: {len(data)} bytes, the index says {shard.filesize}")
        found = _blocks(str(file), data, shard, index, seen)
        if digest != shard.sha256 and not found and len(data) == shard.filesize:
            found.append(f"{file}: sha256 differs, outside of the blocks")
        problems += found
        problems += _sidecar(folder / f"{shard.url}.idx", shard)
    doubled = sorted(doc for doc, times in seen.items() if times > 1)
    if doubled:
        problems.append(
            f"{folder / 'index.json'}: {len(doubled)} documents are there twice, first {doubled[0]}"
        )
    return problems


def _totals(file: str, index: ShardIndex, entry: tuple[int, int, int], vocab_size: int) -> list[str]:
    problems = []
    shards = index.shardlist
    sums = tuple(sum(getattr(s, name) for s in shards) for name in ("ntokens", "ndocs", "text_bytes"))
    said = (index.ntokens, index.ndocs, index.text_bytes)
    if sums != said or said != entry:
        problems.append(
            f"{file}: tokens, documents, bytes: shards add up to {sums}, it says {said}, the set {entry}"
        )
    if index.vocab_size != vocab_size:
        problems.append(f"{file}: vocab_size {index.vocab_size}, the set says {vocab_size}")
    for shard in shards:
        counts = (len(shard.blocks), sum(block.ntokens for block in shard.blocks))
        if counts != (shard.nsamples, shard.ntokens):
            problems.append(
                f"{file}: {shard.url}: blocks and tokens {counts}, it says {(shard.nsamples, shard.ntokens)}"
            )
    return problems


def _blocks(file: str, data: bytes, shard: Shard, index: ShardIndex, seen: Counter[str]) -> list[str]:
    problems: list[str] = []
    names = {f"{block.key}{suffix}" for block in shard.blocks for suffix, *_ in members(block)}
    started = open_doc = 0
    for block in shard.blocks:
        payloads = []
        for suffix, offset, size, xxh3 in members(block):
            name = f"{block.key}{suffix}"
            payload = data[offset : offset + size]
            if len(payload) < size:
                problems.append(f"{file}: {name}: cut off at byte {len(data)}")
                continue
            header = data[offset - tarfile.BLOCKSIZE : offset]
            if header != member_header(name, size):
                there = header[:100].split(b"\x00")[0].decode("ascii", "replace")
                moved = there != name and there in names
                problems.append(
                    f"{file}: {name}: "
                    + (f"reordered: {there} is in its place" if moved else "header differs")
                )
            elif checksum(payload) != xxh3:
                problems.append(f"{file}: {name}: payload differs (checksum)")
            else:
                payloads.append(payload)
        if len(payloads) < 3:
            open_doc = -1  # the next block's first document cannot be judged
            continue
        try:
            block_data = decode_block(*payloads)
        except (ValueError, ValidationError) as error:
            problems.append(f"{file}: {block.key}: {str(error).splitlines()[0]}")
            continue
        problems += [f"{file}: {block.key}: {what}" for what in _contents(block_data, block, index, open_doc)]
        begins = [int(c == 0) for c in block_data.documents.char_starts]
        if begins and open_doc == 1:
            begins[0] = 0
        started += sum(begins)
        seen.update(doc for doc, new in zip(block_data.documents.doc_ids, begins, strict=False) if new)
        open_doc = int(len(block_data.tokens) > 0 and int(block_data.tokens[-1]) != index.eos_id)
    if not problems and started != shard.ndocs:
        problems.append(f"{file}: {started} documents begin here, the index says {shard.ndocs}")
    if not problems and open_doc:
        problems.append(f"{file}: its last document has no end")
    return problems


def _contents(data: BlockData, block: Block, index: ShardIndex, open_doc: int) -> list[str]:
    """What a block's own members say against each other and the index."""
    problems = []
    documents, tokens, starts = data.documents, data.tokens, data.starts
    if tokens.dtype != np.dtype(index.dtype) or tokens.ndim != 1:
        problems.append(f"tokens are {tokens.dtype}, the index says {index.dtype}")
    if len(tokens) != block.ntokens:
        problems.append(f"{len(tokens)} tokens, the index says {block.ntokens}")
    if len(tokens) and int(tokens.max()) >= index.vocab_size:
        problems.append(f"token {int(tokens.max())} is not in the vocabulary of {index.vocab_size}")
    lists = (documents.doc_ids, documents.token_starts, documents.char_starts, documents.char_ends)
    if {len(one) for one in lists} != {block.ndocs} or documents.token_starts != starts.tolist():
        problems.append(f"documents: .docs.npy and .json disagree, or are not the {block.ndocs} of the index")
        return problems
    ends = np.flatnonzero(tokens == index.eos_id) + 1
    expected = np.concatenate([[0], ends[ends < len(tokens)]])
    if not np.array_equal(expected, starts):
        problems.append("documents do not begin where the one before ends")
    if any(low > high for low, high in zip(documents.char_starts, documents.char_ends, strict=True)):
        problems.append("a document's characters end before they begin")
    if open_doc == 0 and documents.char_starts and documents.char_starts[0] != 0:
        problems.append(
            "its first document does not begin at its first character, and no block before holds the rest"
        )
    return problems


def _sidecar(file: Folder, shard: Shard) -> list[str]:
    """Problems of `<tar>.idx`."""
    last = shard.blocks[-1] if shard.blocks else None
    end = last.json_offset + last.json_size + -last.json_size % tarfile.BLOCKSIZE if last else 0
    try:
        right = file.read() == energon_index([*(b.offset - tarfile.BLOCKSIZE for b in shard.blocks), end])
    except (FileNotFoundError, WorkError) as error:
        return [str(error)]
    return [] if right else [f"{file}: its offsets are not those of the index"]
