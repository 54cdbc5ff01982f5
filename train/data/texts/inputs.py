"""What there is to tokenise at a URL: the tars of each source and split, and the identity of their content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from corpusmill.common.blocks import vocabulary
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Entry, Folder
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.shards import INDEX, ShardSet, TextIndex, TextShard
from corpusmill.train.data.texts.encoder import Encoder, load_encoder, read_encoder

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LONGEST = 60  # characters of a source's name: members of tars have at most 100
_TAKEN = ("scratch", "takedown")  # folders of a shard set that are no source


@dataclass(frozen=True)
class Tar:
    """A tar of texts. `path`: relative to its source; `tag`: identifies its bytes, as far as known before they are read;
    `listed`: its entry in our own index, None for a foreign one."""

    file: Folder
    path: str
    size: int
    tag: str
    listed: TextShard | None


@dataclass(frozen=True)
class TextSet:
    """The tars of a (source, split), in their order."""

    source: str
    split: Split
    tars: tuple[Tar, ...]

    @property
    def name(self) -> str:
        return f"{self.source}-{self.split}"


@dataclass(frozen=True)
class Inputs:
    """All texts at a URL, and their tokenizer; `data`: its bytes."""

    sets: tuple[TextSet, ...]
    data: bytes
    encoder: Encoder

    @property
    def tokenizer_xxh3(self) -> str:
        return checksum(self.data)

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The fields of an index that describe the tokens."""
        return vocabulary(self.encoder.vocab_size, self.encoder.eos_id)

    def key(self, version: str, block_tokens: int) -> str:
        """Identifies the token set: changes exactly when its bytes may."""
        tars = [[s.source, s.split, [[tar.path, tar.size, tar.tag] for tar in s.tars]] for s in self.sets]
        return hash_json([version, block_tokens, self.tokenizer_xxh3, self.encoder.eos_id, tars])


def is_text(url: str) -> bool:
    """Whether the data at `url` must be tokenised first (`token_set`): a shard set of texts without tokens, or tars without an
    index. False for anything else, which `open_shards` reads or rejects."""
    folder = _folder(url)
    top = _top(folder)
    if top is not None:
        return not top.sets and bool(top.texts)
    if (folder / INDEX).exists():
        return False
    return any(entry.path.endswith((".tar", *_PACKED)) for entry in folder.list())


def survey(url: str, tokenizer: str | None) -> Inputs:
    """What there is to tokenise at `url`; reads no tar. Raises `UserError` if there is nothing, or no tokenizer for it,
    `WorkError` if an index is not the one that the set names."""
    folder = _folder(url)
    top = _top(folder)
    if top is not None:
        own = folder / top.tokenizer
        data = _named(own)
        if checksum(data) != top.tokenizer_xxh3:
            raise WorkError(f"{own}: not the tokenizer that {folder / INDEX} names (checksum differs)")
        encoder = load_encoder(data, str(own), top.eos_id)
        if tokenizer is not None and (given := read_encoder(Folder(tokenizer)))[0] != data:
            data, encoder = given
        return Inputs(_ours(folder, top), data, encoder)
    sets = _foreign(folder)
    if tokenizer is None:
        raise UserError(
            f"data.tokenizer: {folder} holds tars of text without an index; name the tokenizer.json for them"
        )
    return Inputs(sets, *read_encoder(Folder(tokenizer)))


def _folder(url: str) -> Folder:
    folder = Folder(url)
    return folder.parent if folder.name == INDEX else folder


def _top(folder: Folder) -> ShardSet | None:
    try:
        return ShardSet.model_validate_json((folder / INDEX).read())
    except (FileNotFoundError, ValidationError):
        return None


def _ours(folder: Folder, top: ShardSet) -> tuple[TextSet, ...]:
    if not top.texts:
        raise UserError(f"data.shards: {folder}: a shard set without text shards; nothing to tokenise")
    return tuple(
        TextSet(entry.source, entry.split, tuple(_listed(folder / entry.index, entry.index_xxh3)))
        for entry in top.texts
    )


def _listed(file: Folder, xxh3: str) -> list[Tar]:
    data = _named(file)
    if checksum(data) != xxh3:
        raise WorkError(f"{file}: changed since the set's {INDEX} was written (checksum differs)")
    index = TextIndex.from_json(data, file)
    return [Tar(file.parent / one.url, one.url, one.filesize, one.sha256, one) for one in index.shardlist]


def _named(file: Folder) -> bytes:
    """A file that a set's list names."""
    try:
        return file.read()
    except FileNotFoundError:
        raise WorkError(f"{file}: missing, though the set's {INDEX} names it") from None


def _foreign(folder: Folder) -> tuple[TextSet, ...]:
    """The sets of a folder of tars: `*.tar`, `<source>/*.tar`, `<source>/train/*.tar`, `<source>/validation/*.tar`; without
    a folder for the source, it is named after the folder itself."""
    entries = list(folder.list())
    packed = [entry.path for entry in entries if entry.path.endswith(_PACKED)]
    if packed:
        raise UserError(f"{folder / packed[0]}: compressed tars are not read; unpack it to .tar first")
    tars = [entry for entry in entries if entry.path.endswith(".tar")]
    if not tars:
        raise UserError(
            f"data.shards: {folder}: no {INDEX} and no .tar there; give the folder of a shard set, or of"
            " WebDataset tars: *.tar or <source>/*.tar"
        )
    found: dict[tuple[str, str], list[Tar]] = {}
    named: dict[str, str] = {}  # source -> its folder
    for entry in tars:
        source, split, path = _where(folder, entry)
        name = source_name(folder, source)
        if named.setdefault(name, source) != source:
            raise UserError(
                f"{folder}: the folders '{named[name]}' and '{source}' are both source '{name}'; rename one"
            )
        tar = Tar(folder / entry.path, path, entry.size, entry.tag, None)
        found.setdefault((name, split), []).append(tar)
    return tuple(
        TextSet(source, split, tuple(sorted(found[source, split], key=lambda tar: tar.path)))
        for source in sorted(named)
        for split in SPLITS
        if (source, split) in found
    )


def _where(folder: Folder, entry: Entry) -> tuple[str, str, str]:
    """(folder that names the source, split, path of the tar relative to its source)."""
    parents: Sequence[str] = entry.path.split("/")[:-1]
    if not parents or (len(parents) == 1 and parents[0] in SPLITS):
        return folder.name, parents[0] if parents else "train", entry.path
    rest = entry.path.removeprefix(f"{parents[0]}/")
    if len(parents) == 1 or (len(parents) == 2 and parents[1] in SPLITS):
        return parents[0], parents[1] if len(parents) == 2 else "train", rest
    raise UserError(
        f"{folder / entry.path}: tars lie in <source>/, <source>/train/ or <source>/validation/; move it or name a"
        " folder further down"
    )


def source_name(folder: Folder, source: str) -> str:
    """A source's name: the folder's, with '-' in place of characters that keys cannot have."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", source).strip("-")
    if not name or len(name) > _LONGEST or name in _TAKEN:
        raise UserError(
            f"{folder}: the folder '{source}' cannot name a source: letters, digits, '_' and '-', at most {_LONGEST},"
            f" and not {' or '.join(_TAKEN)}; rename it"
        )
    return name
