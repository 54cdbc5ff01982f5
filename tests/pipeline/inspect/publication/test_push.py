"""A publication pushed to a local server that the Hub's own client speaks with, and read back."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub import HfApi

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.publication.destination import sums_of, write_file
from corpusmill.pipeline.inspect.publication.push import check_push, push
from corpusmill.schemas.publication import Checksums, Publication, PublishedRun
from tests.hub_uploads import INITIAL
from tests.web import Answer, Hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the shape of a publication: what is pushed is not looked into."""
    made = Folder(tmp_path / "made")
    write_file(made, "README.md", b"---\nlicense: mit\n---\n# A card\n")
    write_file(made, "data/a/train-00000-of-00001.parquet", bytes(range(256)) * 40)
    write_file(made, "shards/a/train/a-train-000000.tar", bytes(3000))
    write_file(made, "data/a/empty.txt", b"")
    publish(made)
    write_file(made, "owner.json", b"of the process that pushes")
    return tmp_path / "made"


def publish(made: Folder) -> None:
    """Make what lies there a publication."""
    own = ("SHA256SUMS", "publication.json", "owner.json")
    files = [
        write_file(made, entry.path, (made / entry.path).read())
        for entry in made.list()
        if entry.path not in own
    ]
    sums = write_file(made, "SHA256SUMS", sums_of(files))
    stated = Publication(
        key="", run=PublishedRun(name="made", corpusmill="1", record_xxh3="", stages={}), redacted=True, searched=True,
        taken_down=0, documents=None, shards=None, tokenizer=None, ledger=None, sources=[], files=len(files),
        bytes=sum(file.bytes for file in files), checksums=Checksums(path="SHA256SUMS", sha256=sums.sha256),
    )  # fmt: skip
    write_file(made, "publication.json", stated.to_json())


@pytest.fixture(autouse=True)
def token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    # The Hub's own store of chunks has no stand-in: without it the client speaks Git LFS.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)


def pushed(hub: Hub, name: str = "lab/corpus") -> dict[str, bytes]:
    repo = hub.repos[name]
    return {path: data for path, data in repo.commits[repo.refs["main"]].items() if path not in INITIAL}


def there(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "owner.json"
    }


def test_what_is_pushed_is_what_is_there(
    hub: Hub, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    url = push(Folder(folder), "lab/corpus", False, lines.append)
    assert pushed(hub) == there(folder)
    assert hub.repos["lab/corpus"].private and url.endswith("/datasets/lab/corpus")
    assert hub.token not in "".join([*lines, *capfd.readouterr()])
    assert not any("authorization" in asked.headers for asked in hub.cdn.asked), "the token stays at the Hub"
    api = HfApi(endpoint=hub.url, token=hub.token)
    for path, data in there(folder).items():
        copy = api.hf_hub_download("lab/corpus", path, repo_type="dataset", local_dir=tmp_path / "back")
        assert Path(copy).read_bytes() == data


def test_the_last_file_comes_last_and_old_files_go(hub: Hub, folder: Path) -> None:
    push(Folder(folder), "lab/corpus", False, print)
    (folder / "data/a/train-00000-of-00001.parquet").unlink()
    write_file(Folder(folder), "data/b/train-00000-of-00001.parquet", b"PAR1")
    before = (folder / "publication.json").read_bytes()
    publish(Folder(folder))
    push(Folder(folder), "lab/corpus", False, print)
    assert pushed(hub) == there(folder)
    # Whatever state a reader meets on the way: `publication.json` is there only with all files of its state.
    states = list(hub.repos["lab/corpus"].commits.values())
    whole = [state for state in states if "publication.json" in state]
    assert len(states) > 4 and len(whole) == 2
    assert [state["publication.json"] for state in whole] == [
        before,
        (folder / "publication.json").read_bytes(),
    ]


def test_a_push_that_broke_off_is_finished_by_the_same_command(hub: Hub, folder: Path) -> None:
    last = b'"path": "publication.json"'
    hub.server.once(lambda asked: "/commit/" in asked.path and last in asked.body, Answer(403, b"{}"))
    with pytest.raises(UserError, match=r"--push lab/corpus: the Hub refuses \(HTTP 403\)"):
        push(Folder(folder), "lab/corpus", False, print)
    assert pushed(hub) == {path: data for path, data in there(folder).items() if path != "publication.json"}
    push(Folder(folder), "lab/corpus", False, print)
    assert pushed(hub) == there(folder)


def test_what_the_hub_stored_otherwise_is_noticed(hub: Hub, folder: Path) -> None:
    shutil.copy(folder / "README.md", folder / "NOTES.md")
    publish(Folder(folder))

    def lost(asked: object) -> None:
        for repo in hub.repos.values():
            for files in repo.commits.values():
                files.pop("NOTES.md", None)

    hub.server.faults.append(lost)
    with pytest.raises(WorkError, match=r"NOTES.md: is not there as it is here"):
        push(Folder(folder), "lab/corpus", False, print)


def test_a_card_that_the_hub_does_not_take(hub: Hub, folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: [\n---\n")
    publish(Folder(folder))
    with pytest.raises(WorkError, match=r"--push lab/corpus: Invalid metadata in README.md. - while parsing"):
        push(Folder(folder), "lab/corpus", False, print)


@pytest.mark.parametrize(
    ("path", "data"),
    [("data/a/mine.parquet", b"private"), ("data/a/empty.txt", b"private"), ("README.md", None)],
)
def test_what_is_not_as_published_is_not_pushed(
    hub: Hub, folder: Path, path: str, data: bytes | None
) -> None:
    if data is None:
        (folder / path).unlink()
    else:
        (folder / path).write_bytes(data)
    with pytest.raises(WorkError, match=rf"--push lab/corpus: {folder}/{path}: .*; nothing was uploaded"):
        push(Folder(folder), "lab/corpus", False, print)
    assert "lab/corpus" not in hub.repos


def test_refusals(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("corpus", "a/b/c", "lab/", "../x/y", "lab/cor pus"):
        with pytest.raises(UserError, match="must be OWNER/NAME"):
            check_push(Folder(folder), name)
    with pytest.raises(UserError, match="is no local folder"):
        check_push(Folder("s3://bucket/published"), "lab/corpus")
    hub.repo("lab/open", INITIAL)
    with pytest.raises(UserError, match="lab/open: is public already; give --public if that is meant"):
        push(Folder(folder), "lab/open", False, print)
    assert pushed(hub, "lab/open") == {}
    push(Folder(folder), "lab/open", True, print)
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(UserError, match=r"HTTP 401\): the token in HF_TOKEN may not write there") as refused:
        push(Folder(folder), "lab/new", False, print)
    assert "hf_other" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", " ")
    with pytest.raises(UserError, match="the environment variable HF_TOKEN is empty"):
        push(Folder(folder), "lab/corpus", False, print)
