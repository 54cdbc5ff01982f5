"""Data sets of the Hub, from a local server that the Hub's own client reads as well."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi, HfFileSystem
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common import http_files
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.hub import Place, _next_page, parse, pin
from corpusmill.common.storage import Folder
from tests.web import PAGE, Answer, Hub, git_oid

BIG = bytes(range(256)) * 4096  # 1 MiB
FILES = {
    "README.md": b"# A card\n", "data/a.jsonl": b'{"text": "a"}\n', "data/big.bin": BIG, "data/deep/b b.txt": b"b",
    **{f"more/{n}.txt": b"%d" % n for n in range(3 * PAGE)},
}  # fmt: skip


@pytest.fixture(autouse=True)
def data_set(hub: Hub) -> None:
    hub.repo("org/set", FILES)


def test_the_server_is_one_to_the_hubs_own_client(hub: Hub) -> None:
    api = HfApi(endpoint=hub.url, token=False)
    commit = hub.repos["org/set"].refs["main"]
    assert api.dataset_info("org/set", revision="main").sha == commit
    tree = api.list_repo_tree("org/set", repo_type="dataset", recursive=True)
    files = {entry.path: entry for entry in tree if hasattr(entry, "size")}
    assert set(files) == set(FILES) and len(FILES) > 2 * PAGE
    assert files["data/big.bin"].lfs.sha256 == hashlib.sha256(BIG).hexdigest()
    assert files["README.md"].blob_id == git_oid(FILES["README.md"])
    system = HfFileSystem(endpoint=hub.url, token=False, skip_instance_cache=True)
    with system.open("datasets/org/set/data/big.bin", "rb", block_size=1000) as file:
        file.seek(123_456)
        assert file.read(300) == BIG[123_456 : 123_456 + 300]
    assert {name.partition("@")[0] for name in system.glob("datasets/org/set/more/*.txt")} == {
        f"datasets/org/set/more/{n}.txt" for n in range(3 * PAGE)
    }
    # And what we list is what it lists.
    ours = {entry.path: (entry.size, entry.tag) for entry in Folder("hf://datasets/org/set").list()}
    assert ours == {
        path: (entry.size, f"lfs-sha256:{entry.lfs.sha256}" if entry.lfs else f"git-sha1:{entry.blob_id}")
        for path, entry in files.items()
    }


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("o/n", Place("o/n", "main", "")),
        ("o/n@v1.0/a/b.txt", Place("o/n", "v1.0", "a/b.txt")),
        ("o/n@refs%2Fconvert%2Fparquet/x.parquet", Place("o/n", "refs/convert/parquet", "x.parquet")),
        ("o/n@refs/convert/parquet/x.parquet", Place("o/n", "refs/convert/parquet", "x.parquet")),
        ("o/n@refs/pr/12/x", Place("o/n", "refs/pr/12", "x")),
        ("o/n/with@sign.txt", Place("o/n", "main", "with@sign.txt")),
    ],
)
def test_places(path: str, place: Place) -> None:
    assert parse(path) == place


def test_what_is_no_data_set() -> None:
    with pytest.raises(UserError, match=r"hf://datasets/squad: not a data set; allowed: hf://datasets/OWNER"):
        parse("squad")
    with pytest.raises(UserError, match=r"hf://owner: only data sets of the Hub"):
        Folder("hf://owner/model/config.json").exists()


def test_a_pinned_revision_stays_when_its_branch_moves(hub: Hub) -> None:
    repo = hub.repos["org/set"]
    first = repo.refs["main"]
    known: dict[str, str] = {}
    url = pin("hf://datasets/org/set/data/a.jsonl", known)
    assert url == f"hf://datasets/org/set@{first}/data/a.jsonl"
    assert known == {"hf://datasets/org/set@main": first}
    repo.commit({"data/a.jsonl": b"other"})
    assert Folder(url).read() == FILES["data/a.jsonl"] and pin(url) == url
    assert pin("hf://datasets/org/set", known) == f"hf://datasets/org/set@{first}", (
        "one state for all paths of a run"
    )
    assert Folder("hf://datasets/org/set/data/a.jsonl").read() == b"other"
    repo.refs["refs/convert/parquet"] = first
    assert pin("hf://datasets/org/set@refs%2Fconvert%2Fparquet", known) == f"hf://datasets/org/set@{first}"
    assert known["hf://datasets/org/set@refs%2Fconvert%2Fparquet"] == first


def test_reads_in_ranges_and_the_token_stays_at_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    file = Folder("hf://datasets/org/set/data/big.bin")
    with file.open(size=len(BIG)) as stream:
        stream.seek(-7, 2)
        assert stream.read() == BIG[-7:]
        stream.seek(5000)
        assert stream.read(100) == BIG[5000:5100]
        stream.seek(0)
        assert b"".join(iter(lambda: stream.read(10_000), b"")) == BIG
    assert file.read_range(3, 4) == BIG[3:7]
    assert Folder("hf://datasets/org/set/data/deep/b b.txt").read() == b"b"
    assert all(asked.headers["authorization"] == f"Bearer {hub.token}" for asked in hub.server.asked)
    assert hub.cdn.asked and not any("authorization" in asked.headers for asked in hub.cdn.asked)
    resolved = [asked for asked in hub.server.asked if "/resolve/" in asked.path]
    assert len(resolved) == 3 < len(hub.cdn.asked), "one redirect a file, whatever its number of ranges"


def test_parquet_is_not_downloaded_as_a_whole(hub: Hub) -> None:
    table = pa.table(
        {"text": [f"{n}" * 40 for n in range(20_000)], "other": [b"%d" % n * 90 for n in range(20_000)]}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False, row_group_size=10_000)
    data = sink.getvalue().to_pybytes()
    hub.repo("org/table", {"t.parquet": data})
    with Folder("hf://datasets/org/table/t.parquet").open() as stream:
        found = pq.ParquetFile(stream, pre_buffer=False).read_row_group(1, columns=["text"])
    assert found["text"].to_pylist() == table["text"].to_pylist()[10_000:]
    spans = [asked.range.removeprefix("bytes=").split("-") for asked in hub.cdn.asked]
    assert sum(int(last) + 1 - int(first) for first, last in spans) < len(data) / 2


def test_faults_of_the_network_are_overcome(hub: Hub) -> None:
    api = "/api/datasets/org/set"
    hub.server.once(lambda a: a.path.startswith(f"{api}/tree"), Answer(429, b"", {"Retry-After": "0"}))
    hub.server.once(lambda a: a.path.startswith(f"{api}/revision"), Answer(503))
    hub.cdn.once(lambda a: True, Answer(503))
    hub.cdn.once(lambda a: True, Answer(200, BIG, {"ETag": f'"cdn-{len(BIG)}"'}, cut=70_000))
    hub.cdn.once(lambda a: a.range.startswith("bytes=70000-"), Answer(403))  # the signed address has expired
    url = pin("hf://datasets/org/set/data")
    (entry,) = (e for e in Folder(url).list() if e.path == "big.bin")
    with (Folder(url) / entry.path).open(size=entry.size) as stream:
        assert stream.read() == BIG
    ranges = [asked.range for asked in hub.cdn.asked]
    assert ranges[1].startswith("bytes=0-") and ranges[2].startswith("bytes=70000-"), (
        "resumed where it was cut"
    )
    assert len([a for a in hub.server.asked if "/resolve/" in a.path]) == 2


def test_a_server_that_fails_for_good(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_files, "RETRIES", 2)
    hub.server.faults.append(lambda asked: Answer(503))
    with pytest.raises(WorkError, match=r"hf://datasets/org/set@main: http://.*: HTTP 503"):
        pin("hf://datasets/org/set/data")
    assert len(hub.server.asked) == 3
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WorkError, match=r"cannot be reached \(NewConnectionError\)"):
        pin("hf://datasets/org/set/data")


def test_errors_say_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repo("org/secret", {"a": b""}, private=True)
    hub.repo("org/gated", {"a": b""}, gated=True)
    with pytest.raises(
        UserError,
        match=r"org/sett: no such data set, or no right to read it; did you mean 'org/set'\?; set HF_TOKEN",
    ):
        pin("hf://datasets/org/sett")
    with pytest.raises(
        UserError, match=r"org/secret: no such data set, or no right to read it.*; set HF_TOKEN"
    ):
        pin("hf://datasets/org/secret")
    with pytest.raises(UserError, match=r"org/set: no revision 'mian'; did you mean 'main'\?; branches"):
        pin("hf://datasets/org/set@mian")
    with pytest.raises(
        UserError, match=r"org/gated: gated: accept its terms at http.*/datasets/org/gated, and set HF_TOKEN"
    ):
        list(Folder(pin("hf://datasets/org/gated")).list())
    with pytest.raises(FileNotFoundError):
        Folder("hf://datasets/org/set/data/missing").entry()
    assert list(Folder("hf://datasets/org/set/nothing").list()) == []
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(UserError, match="the token in HF_TOKEN may not read it"):
        pin("hf://datasets/org/secret")
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert Folder(pin("hf://datasets/org/secret/a")).entry().size == 0
    with pytest.raises(UserError, match="read only"):
        Folder("hf://datasets/org/set/new").write(b"x")
    seen = len(hub.server.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set; unset it, or name a local copy"):
        pin("hf://datasets/org/set")
    assert len(hub.server.asked) == seen


def test_pages_of_another_host_do_not_get_the_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    tree = Answer(200, b"[]", {"Link": f'<{hub.cdn.url}/next>; rel="next"'}, ranges=False)
    hub.server.once(lambda asked: "/tree/" in asked.path, tree)
    hub.cdn.once(lambda asked: urlsplit(asked.path).path == "/next", Answer(200, json.dumps([]).encode()))
    assert list(Folder("hf://datasets/org/set").list()) == []
    assert [asked.path for asked in hub.cdn.asked] == ["/next"] and "authorization" not in hub.cdn.asked[
        0
    ].headers


@given(st.text(max_size=80) | st.from_regex(r"[a-z@/%.]{0,40}", fullmatch=True))
def test_any_path_is_a_place_or_a_mistake_of_the_user(path: str) -> None:
    try:
        place = parse(path)
    except UserError:
        return
    assert place.repo.count("/") == 1 and "@" not in place.repo and place.revision
    assert parse(f"{place.shown.removeprefix('hf://datasets/')}/{place.path}") == place


@given(st.text(max_size=80))
def test_any_link_header(link: str) -> None:
    assert "<" not in _next_page(link)
    assert _next_page('<http://h/first>; rel="first", <http://h/2?a=b,c>; rel="next"') == "http://h/2?a=b,c"
