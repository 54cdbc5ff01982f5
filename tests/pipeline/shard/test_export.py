"""Exports, read back by plain readers of the documented formats."""

from __future__ import annotations

import itertools
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.commands.runs import shard_export
from corpusmill.pipeline.shard.export import _TOKENS, _metric, export
from corpusmill.pipeline.shard.read import iter_documents
from tests.command_line import CliRunner
from tests.pipeline.corpus import Here, contents
from tests.pipeline.shard.helpers import build, corpus, indexes, rewritten


def documents(shards: Path) -> dict[str, list[list[int]]]:
    """Name of the set -> the tokens of its documents in their order, each with the one that ends it."""
    return {
        index.name: [[*doc.tokens.tolist(), index.eos_id] for doc in iter_documents(folder, index)]
        for folder, index in indexes(Folder(shards))
    }


def read_megatron(prefix: Path) -> list[list[int]]:
    """As the format is described in Megatron-LM: a sequence each."""
    head = prefix.with_suffix(".idx").read_bytes()
    assert head[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack_from("<QBQQ", head, 9)
    assert version == 1 and documents == sequences + 1
    dtype = {8: np.uint16, 4: np.int32}[code]
    at = 34
    lengths = np.frombuffer(head, "<i4", sequences, at)
    pointers = np.frombuffer(head, "<i8", sequences, at + 4 * sequences)
    bounds = np.frombuffer(head, "<i8", documents, at + 12 * sequences)
    assert len(head) == at + 12 * sequences + 8 * documents
    assert bounds.tolist() == list(range(documents))
    data = prefix.with_suffix(".bin").read_bytes()
    return [np.frombuffer(data, dtype, n, p).tolist() for n, p in zip(lengths, pointers, strict=True)]


def test_megatron(made: Path, tmp_path: Path) -> None:
    wanted = documents(made / "shards")
    files = export(Folder(made / "shards"), Folder(tmp_path), "megatron", Here())
    assert files == sorted(contents(tmp_path)) == sorted(f"{n}{e}" for n in wanted for e in (".bin", ".idx"))
    assert {name: read_megatron(tmp_path / name) for name in wanted} == wanted


def test_datatrove(made: Path, tmp_path: Path) -> None:
    wanted = documents(made / "shards")
    files = export(Folder(made / "shards"), Folder(tmp_path), "datatrove", Here(reverse=True))
    assert files == sorted(contents(tmp_path))
    for folder, index in indexes(Folder(made / "shards")):
        found = []
        for shard in index.shardlist:
            file = tmp_path / index.name / f"{shard.url.removesuffix('.tar')}.ds"
            tokens = np.frombuffer(file.read_bytes(), index.dtype)
            ends = np.frombuffer(Path(f"{file}.index").read_bytes(), "<u8").tolist()
            about = Path(f"{file}.metadata").read_text().split("\n")
            size = np.dtype(index.dtype).itemsize
            assert about == [f"tokenizer.json|{size}", str(len(tokens)), _metric(len(tokens))]
            assert folder.name in ("train", "validation") and ends[-1] == len(tokens) == shard.ntokens
            found += [tokens[low:high].tolist() for low, high in itertools.pairwise([0, *ends])]
        assert found == wanted[index.name]


def test_large_vocabularies_are_four_bytes(tmp_path: Path) -> None:
    build(tmp_path, corpus())
    file = tmp_path / "tokenizer/tokenizer.json"
    content = json.loads(file.read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 70_000, "content": "<|far|>"})
    content["model"]["vocab"]["<|far|>"] = 70_000
    file.write_text(json.dumps(content))
    from corpusmill.pipeline.shard.stage import Shards
    from tests.pipeline.corpus import context, partitions, recipe
    from tests.pipeline.shard.helpers import PARAMS

    made = recipe(["web", "long-texts", "rare", "lone"], shard=PARAMS)
    parts = partitions(Folder(tmp_path / "redact"), corpus(), 3)
    Shards(made).run(context(Folder(tmp_path), made, "shard", parts))
    export(Folder(tmp_path / "shards"), Folder(tmp_path / "out"), "megatron", Here())
    wanted = documents(tmp_path / "shards")
    assert {name: read_megatron(tmp_path / "out" / name) for name in wanted} == wanted


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token and text shards; not to be written to."""
    tmp = tmp_path_factory.mktemp("both")
    build(tmp, corpus(), format="both", shard_mb=0.02)
    return tmp / "shards"


def test_dali(both: Path, tmp_path: Path) -> None:
    files = export(Folder(both), Folder(tmp_path), "dali", Here())
    tars = sorted(both.rglob("*.tar"))
    assert files == sorted(contents(tmp_path))
    assert files == sorted(str(tar.relative_to(both).with_suffix(".idx")) for tar in tars)
    for tar in tars:
        data = tar.read_bytes()
        lines = (tmp_path / tar.relative_to(both)).with_suffix(".idx").read_text().splitlines()
        assert lines[0] == f"v1.2 {len(lines) - 1}"
        extensions = (
            {"tokens.npy", "docs.npy", "json"} if not tar.parent.name.endswith("-text") else {"txt", "json"}
        )
        for line in lines[1:]:
            words = line.split(" ")
            parts = [words[i : i + 4] for i in range(0, len(words), 4)]
            assert {part[0] for part in parts} == extensions
            assert len({name.partition(".")[0] for _, _, _, name in parts}) == 1
            for extension, offset, size, name in parts:
                header = data[int(offset) - 512 : int(offset)]
                assert header[:100].rstrip(b"\x00").decode() == name and name.endswith(f".{extension}")
                assert int(header[124:135], 8) == int(size)


def test_webshart(both: Path, tmp_path: Path) -> None:
    shutil.copytree(both, tmp_path / "here")  # the indexes may lie beside the tars
    files = export(Folder(tmp_path / "here"), Folder(tmp_path / "here"), "webshart", Here())
    assert len(files) == len(list(both.rglob("*.tar")))
    for name in files:
        file = tmp_path / "here" / name
        content, data = json.loads(file.read_bytes()), file.with_suffix(".tar").read_bytes()
        assert (content["path"], content["filesize"]) == (file.with_suffix(".tar").name, len(data))
        for member, where in content["files"].items():
            header = data[where["offset"] - 512 : where["offset"]]
            assert (
                header[:100].rstrip(b"\x00").decode() == member and int(header[124:135], 8) == where["length"]
            )


@pytest.mark.parametrize("to", ["megatron", "datatrove"])
@pytest.mark.parametrize("below", ["", "exported", "link"])
def test_token_files_stay_out_of_the_shards(made: Path, tmp_path: Path, to: str, below: str) -> None:
    """`run` would delete them, and a reader of the set come by them."""
    shards = tmp_path / "shards"
    shutil.copytree(made / "shards", shards)
    (tmp_path / "link").symlink_to(shards)
    out = tmp_path / below if below == "link" else shards / below
    before = contents(shards)
    with pytest.raises(UserError) as caught:
        export(Folder(shards), Folder(out), to, Here())
    assert str(caught.value) == (
        f"{out}: {to} does not go into the folder of the shards, {shards}; only dali, webshart may; give another OUT"
    )
    assert contents(shards) == before
    assert export(Folder(shards), Folder(f"{shards}-{to}"), to, Here()), "a name that only begins alike"


def test_a_run_is_as_good_as_its_shards(made: Path, tmp_path: Path) -> None:
    for place, out in ((made, "run"), (made / "shards", "shards")):
        export(Folder(place), Folder(tmp_path / out), "dali", Here())
    assert contents(tmp_path / "run") == contents(tmp_path / "shards") != {}


@pytest.mark.parametrize("to", ["megatron", "datatrove"])
def test_a_damaged_block_is_not_exported(made: Path, tmp_path: Path, to: str) -> None:
    shutil.copytree(made / "shards", tmp_path / "shards")
    tar = tmp_path / "shards/web/train/web-train-000000.tar"
    data = bytearray(tar.read_bytes())
    data[512 + 200] ^= 1
    tar.write_bytes(data)
    with pytest.raises(WorkError, match=rf"{tar.name}: .*tokens\.npy: checksum differs"):
        export(Folder(tmp_path / "shards"), Folder(tmp_path / "out"), to, Here())


def test_a_document_too_long_for_the_format_is_reported(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpusmill.pipeline.shard.export.MAX_LENGTH", 100)
    with pytest.raises(UserError, match=r"\.bin: a document of \d+ tokens does not fit in it"):
        export(Folder(made / "shards"), Folder(tmp_path), "megatron", Here())


def test_a_tar_of_fewer_texts_than_its_index_says(both: Path, tmp_path: Path) -> None:
    shutil.copytree(both, tmp_path / "shards")
    list_path = "web/train-text/index.json"
    rewritten(tmp_path / "shards", list_path, lambda index: index["shardlist"][0].update(nsamples=9999))
    with pytest.raises(WorkError, match=r"web-train-text-000000\.tar: \d+ members, the index says 19998"):
        export(Folder(tmp_path / "shards"), Folder(tmp_path / "out"), "dali", Here())


def test_mistakes_are_one_line(made: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="allowed: megatron, datatrove, dali, webshart; did you mean 'megatron'"
    ):
        export(Folder(made / "shards"), Folder(tmp_path), "megatron-lm", Here())
    with pytest.raises(UserError, match="no shards there"):
        export(Folder(tmp_path), Folder(tmp_path / "out"), "dali", Here())
    build(tmp_path / "text", corpus(), format="text")
    with pytest.raises(UserError, match="no token shards there, only text; megatron reads tokens"):
        export(Folder(tmp_path / "text/shards"), Folder(tmp_path / "out"), "megatron", Here())


def test_the_command(made: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(shard_export)
    arguments = [str(made / "shards"), str(tmp_path), "--to", "dali", "--workers", "0", "--json", "--quiet"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["files"] == sorted(contents(tmp_path))


def test_ctrl_c_says_how_to_go_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was begun under a temporary name is gone after the next export, whatever else lies there stays."""
    (tmp_path / "mine#1").write_bytes(b"")

    def stop(*_: object) -> None:
        (tmp_path / "web-train.bin#1").write_bytes(b"half a file")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(_TOKENS, "megatron", stop)
        with pytest.raises(KeyboardInterrupt):
            shard_export(str(made), str(tmp_path), "megatron", workers=0, quiet=True)
    expected = (
        f"interrupted; {tmp_path} lacks files: run the same command again, which writes all of them again\n"
    )
    assert capsys.readouterr().err == expected
    files = export(Folder(made), Folder(tmp_path), "megatron", Here())
    assert sorted(contents(tmp_path)) == sorted([*files, "mine#1"])


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(0, "0.00 T"), (7, "7.00 T"), (999, "999 T"), (1500, "1.50 kT"), (123_000, "123 kT"), (999_999, "1.00 MT"),
     (1_230_000_000, "1.23 GT")],
)  # fmt: skip
def test_metric_is_that_of_humanize(tokens: int, shown: str) -> None:
    assert _metric(tokens) == shown
