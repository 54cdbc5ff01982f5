"""The tars as others read them, and `verify` naming every damage."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.shard.read import read_block
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.schemas.shards import BlockDocuments
from tests.pipeline.corpus import documents
from tests.pipeline.shard.helpers import indexes, prepared


def test_plain_webdataset_reads_them(made: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    for folder, index in indexes(Folder(made / "shards")):
        urls = [f"{folder}/{shard.url}" for shard in index.shardlist]
        samples = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
        blocks = [(shard, block) for shard in index.shardlist for block in shard.blocks]
        assert [sample["__key__"] for sample in samples] == [block.key for _, block in blocks]
        for sample, (shard, block) in zip(samples, blocks, strict=True):
            data = read_block(folder, shard, block)
            assert (
                np.array_equal(sample["tokens.npy"], data.tokens)
                and sample["tokens.npy"].dtype == index.dtype
            )
            assert np.array_equal(sample["docs.npy"], data.starts) and sample["docs.npy"].dtype == np.uint32
            assert BlockDocuments.model_validate(sample["json"]) == data.documents


def test_a_block_is_one_request(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    read = Folder.read_range

    def counted(folder: Folder, offset: int, size: int) -> bytes:
        asked.append((offset, size))
        return read(folder, offset, size)

    monkeypatch.setattr(Folder, "read_range", counted)
    folder, index = indexes(Folder(made / "shards"))[-2]
    block = index.shardlist[0].blocks[1]
    read_block(folder, index.shardlist[0], block)
    assert asked == [(block.offset, block.json_offset + block.json_size - block.offset)]


def test_tars_are_plain_ustar_without_time_or_owner(made: Path) -> None:
    for file in sorted((made / "shards").rglob("*.tar")):
        with tarfile.open(file, format=tarfile.USTAR_FORMAT) as tar:
            infos = tar.getmembers()
        assert infos and all(i.isreg() and not i.pax_headers for i in infos)
        assert {(i.mtime, i.uid, i.gid, i.uname, i.gname, i.mode) for i in infos} == {
            (0, 0, 0, "", "", 0o644)
        }
        stems = [i.name.partition(".")[0] for i in infos]
        assert [i.name.partition(".")[2] for i in infos] == ["tokens.npy", "docs.npy", "json"] * (
            len(infos) // 3
        )
        assert stems[::3] == stems[1::3] == stems[2::3] == sorted(set(stems))


def test_offsets_are_those_of_the_index_and_of_energon(made: Path) -> None:
    for folder, index in indexes(Folder(made / "shards")):
        for shard in index.shardlist:
            data = (folder / shard.url).read()
            offsets = np.frombuffer((folder / f"{shard.url}.idx").read(), dtype="<u8")
            assert len(offsets) == shard.nsamples + 1
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                infos = tar.getmembers()
                assert int(offsets[-1]) == tar.offset  # what Energon's own preparation writes
            assert offsets[:-1].tolist() == [info.offset for info in infos[::3]]
            for block, start in zip(shard.blocks, offsets[:-1].tolist(), strict=True):
                assert data[start : start + 100].rstrip(b"\x00").decode() == f"{block.key}.tokens.npy"
                low, high = block.offset + block.header, block.offset + block.size
                tokens = np.frombuffer(data[low:high], dtype=index.dtype)
                assert (
                    np.array_equal(tokens, read_block(folder, shard, block).tokens)
                    and len(tokens) == block.ntokens
                )
            assert (shard.filesize, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_the_index_is_a_wids_index(made: Path) -> None:
    for folder, _ in indexes(Folder(made / "shards")):
        content = json.loads((folder / "index.json").read())
        assert (content["__kind__"], content["wids_version"]) == ("wids-shard-index-v1", 1)
        for shard in content["shardlist"]:
            assert (folder / shard["url"]).entry().size == shard["filesize"]
            assert shard["nsamples"] == len(shard["blocks"])


def test_a_long_name_of_a_source_is_refused(tmp_path: Path) -> None:
    from corpusmill.pipeline.shard.plan import plan_sets

    numbers = {"docs": 1, "bytes": 1}
    splits = {"x" * 80: {"train": numbers, "validation": {"docs": 0, "bytes": 0}}}
    with pytest.raises(UserError, match="too long"):
        plan_sets(splits, {"sources": {}}, 1.0, 2)


def test_a_source_is_not_named_as_the_folder_of_takedowns() -> None:
    """What lies in it is swept away by the next takedown."""
    from corpusmill.pipeline.shard.plan import plan_sets

    numbers = {"docs": 1, "bytes": 1}
    with pytest.raises(UserError, match="sources: 'takedown': that folder"):
        plan_sets({"takedown": {"train": numbers, "validation": numbers}}, {"sources": {}}, 1.0, 2)


def test_keys_are_unique_over_the_data_set(made: Path) -> None:
    keys = []
    for _, index in indexes(Folder(made / "shards")):
        for shard in index.shardlist:
            mine = [block.key for block in shard.blocks]
            assert mine == [f"{shard.url.removesuffix('.tar')}-{i:06d}" for i in range(len(mine))]
            keys += mine
    assert len(set(keys)) == len(keys)


def test_no_documents_make_an_empty_set(tmp_path: Path) -> None:
    made, here = prepared(tmp_path, documents(["one more text"], "lone"))
    Shards(made).run(here)
    assert [index.name for _, index in indexes(Folder(tmp_path / "shards"))] == ["lone-train"]
    assert verify_shards(Folder(tmp_path / "shards")) == []


# --- damage


def truncate(tars: list[Path]) -> list[str]:
    tars[0].write_bytes(tars[0].read_bytes()[:-12_000])
    return [tars[0].name, "truncated"]


def truncate_end(tars: list[Path]) -> list[str]:
    tars[0].write_bytes(tars[0].read_bytes()[:-600])
    return [tars[0].name, "truncated"]


def swap(tars: list[Path]) -> list[str]:
    first, second = tars[0].read_bytes(), tars[1].read_bytes()
    tars[0].write_bytes(second)
    tars[1].write_bytes(first)
    return [tars[0].name, "swapped"]


def flip_payload(tars: list[Path]) -> list[str]:
    return [*_flip(tars[0], 512 + 200), ".tokens.npy: payload differs"]


def flip_header(tars: list[Path]) -> list[str]:
    return [*_flip(tars[0], 130), ".tokens.npy: header differs"]


def flip_end(tars: list[Path]) -> list[str]:
    return [*_flip(tars[0], tars[0].stat().st_size - 1), "sha256 differs"]


def _flip(file: Path, place: int) -> list[str]:
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)
    return [file.name]


def reorder(tars: list[Path]) -> list[str]:
    with tarfile.open(tars[0]) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar.getmembers()]  # type: ignore[union-attr]
    half = len(members) // 6 * 3
    with tarfile.open(tars[0], "w", format=tarfile.USTAR_FORMAT) as tar:
        for info, data in members[half:] + members[:half]:
            tar.addfile(info, io.BytesIO(data))
    return [tars[0].name, "reordered"]


def lose(tars: list[Path]) -> list[str]:
    tars[1].unlink()
    return [tars[1].name, "missing"]


def lose_sidecar(tars: list[Path]) -> list[str]:
    Path(f"{tars[0]}.idx").unlink()
    return [f"{tars[0].name}.idx", "missing"]


def wrong_sidecar(tars: list[Path]) -> list[str]:
    return [*_flip(Path(f"{tars[0]}.idx"), 9), "offsets"]


def stray(tars: list[Path]) -> list[str]:
    shutil.copy(tars[0], tars[0].with_name("web-train-000099.tar"))
    return ["web-train-000099.tar", "in no index"]


def edit_index(tars: list[Path]) -> list[str]:
    file = tars[0].with_name("index.json")
    file.write_text(file.read_text().replace('"ndocs": ', '"ndocs": 1', 1))
    return ["web/train/index.json", "checksum differs"]


def break_index(tars: list[Path]) -> list[str]:
    tars[0].with_name("index.json").write_text("{}")
    return ["web/train/index.json", "not a ShardIndex"]


def lose_set(tars: list[Path]) -> list[str]:
    (tars[0].parents[2] / "index.json").unlink()
    return ["index.json", "missing"]


def edit_tokenizer(tars: list[Path]) -> list[str]:
    return [*_flip(tars[0].parents[2] / "tokenizer.json", 100), "checksum differs"]


Damage = Callable[[list[Path]], list[str]]
DAMAGES: list[Damage] = [
    truncate, truncate_end, swap, flip_payload, flip_header, flip_end, reorder, lose, lose_sidecar, wrong_sidecar, stray,
    edit_index, break_index, lose_set, edit_tokenizer,
]  # fmt: skip


def test_verify_finds_nothing_wrong_with_what_was_written(made: Path) -> None:
    assert verify_shards(Folder(made / "shards")) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_verify_names_the_damage(
    made: Path, tmp_path: Path, damage: Callable[[list[Path]], list[str]]
) -> None:
    shutil.copytree(made / "shards", tmp_path / "shards")
    words = damage(sorted((tmp_path / "shards/web/train").glob("*.tar")))
    problems = verify_shards(Folder(tmp_path / "shards"))
    assert any(all(word in problem for word in words) for problem in problems), problems


def test_a_damaged_block_is_not_read(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "shards", tmp_path / "shards")
    folder, index = indexes(Folder(tmp_path / "shards"))[-2]
    flip_payload(sorted((tmp_path / "shards/web/train").glob("*.tar")))
    with pytest.raises(WorkError, match=r"tokens\.npy: checksum differs"):
        read_block(folder, index.shardlist[0], index.shardlist[0].blocks[0])
