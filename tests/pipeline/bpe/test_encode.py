"""Ids are the library's, on any text, for every form of tokenizer that the kernels know, and for those they do not."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import itertools
import json
import random
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.bpe.encode import encode, how, normalized
from corpusmill.pipeline.bpe.engine import Engine
from corpusmill.pipeline.bpe.kernels.table import EMPTIED, new_table
from corpusmill.pipeline.bpe.load import Bpe, decode, load_bpe
from corpusmill.pipeline.bpe.recognise import read
from tests.conftest import DATA, shared
from tests.pipeline.bpe.vocabularies import (
    EOS,
    FORMS,
    byte_level,
    digits,
    nasty,
    of_library,
    sample,
    sequence,
    split,
    trained,
)


def ours(bpe: Bpe, texts: list[str], kind: Any = None) -> list[list[int]]:
    ids, offsets = encode(bpe, pa.chunked_array([pa.array(texts, kind or pa.large_string())]))
    assert ids.dtype == np.uint32 and offsets.dtype == np.int64 and len(offsets) == len(texts) + 1
    return [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]


def changed(bpe: Bpe, **sections: Any) -> Bpe:
    """The same tokenizer with other sections in its `tokenizer.json`."""
    content = {**json.loads(bpe.tokenizer.to_str()), **sections}
    return load_bpe(json.dumps(content).encode(), EOS, "tokenizer.json")


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60)
@given(texts=st.lists(nasty(), max_size=6))
@example(texts=["", "  'S\u0301 \r\n /\n x", "", "a" * 300, "日本語" * 60])
def test_ids_are_the_librarys(form: str, texts: list[str]) -> None:
    bpe = trained(form)
    assert bpe.engine is not None
    assert ours(bpe, texts) == of_library(bpe, texts)


@pytest.mark.parametrize("form", ["gpt2", "llama3", "gpt4o"])
@settings(max_examples=60)
@given(texts=st.lists(nasty(), max_size=6))
def test_with_whole_tokens_before_merges(form: str, texts: list[str]) -> None:
    bpe = trained(form, ignore_merges=True)
    assert ours(bpe, texts) == of_library(bpe, texts)


@lru_cache(maxsize=1)
def converted() -> Bpe:
    """Merges as converters of tiktoken's files write them: of each token all ways to cut it into two that are tokens, some
    of which are of later tokens."""
    content = json.loads(trained("llama3").tokenizer.to_str())["model"]
    order = content["vocab"]
    pairs = [
        sorted(
            ((token[:i], token[i:]) for i in range(1, len(token)) if {token[:i], token[i:]} <= {*order}),
            key=lambda pair: (order[pair[0]], order[pair[1]]),
        )
        for token in sorted(set(order) - {EOS}, key=order.__getitem__)
    ]
    merges = [list(pair) for ways in pairs for pair in ways]
    assert len(merges) > len(content["merges"])
    return changed(trained("llama3"), model={**content, "merges": merges, "ignore_merges": True})


@settings(max_examples=100)
@given(texts=st.lists(nasty(), max_size=6))
def test_merges_converted_from_tiktoken(texts: list[str]) -> None:
    bpe = converted()
    assert ours(bpe, texts) == of_library(bpe, texts)


@settings(max_examples=60)
@given(texts=st.lists(nasty(), max_size=6), seed=st.integers(0, 3))
def test_merges_in_any_order(texts: list[str], seed: int) -> None:
    model = json.loads(trained("gpt4o").tokenizer.to_str())["model"]
    random.Random(seed).shuffle(model["merges"])
    bpe = changed(trained("gpt4o"), model=model)
    assert ours(bpe, texts) == of_library(bpe, texts)


@settings(max_examples=100)
@given(data=st.binary(max_size=200), form=st.sampled_from(["gpt2", "llama3", "gpt4o", "deepseek"]))
def test_any_bytes_that_became_text(data: bytes, form: str) -> None:
    texts = [data.decode("utf-8", "replace"), data.decode("latin-1"), data.decode("utf-16-le", "ignore")]
    assert ours(trained(form), texts) == of_library(trained(form), texts)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_slices_chunks_and_types_of_columns(kind: pa.DataType) -> None:
    texts = ["begin", "", "it's 12,345.67", "日本語", " end\n"] * 3
    column = pa.array(texts, kind)
    chunked = pa.chunked_array([column.slice(1, 4), column.slice(0, 0), column.slice(7)], kind)
    ids, offsets = encode(trained("llama3"), chunked)
    wanted = of_library(trained("llama3"), chunked.to_pylist())
    assert ids.tolist() == [token for row in wanted for token in row]
    assert np.diff(offsets).tolist() == [len(row) for row in wanted]
    assert encode(trained("llama3"), pa.chunked_array([], kind))[1].tolist() == [0]


@pytest.mark.parametrize("nfc", [False, True])
def test_a_column_need_not_be_chunked(nfc: bool) -> None:
    bpe, texts = trained("gpt4o", nfc=nfc), ["begin", "", "e\u0301 12,345.67", " end\n"]
    wanted, column = of_library(bpe, texts), pa.chunked_array([texts])
    for given_texts in (texts, tuple(texts), pa.array(texts), pa.array(texts, pa.large_string()), column):
        ids, offsets = encode(bpe, given_texts)
        assert [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)] == wanted
        assert normalized(bpe, given_texts).to_pylist() == normalized(bpe, column).to_pylist()
    for empty in ([], pa.array([], pa.string()), pa.chunked_array([], pa.string())):
        assert encode(bpe, empty)[1].tolist() == [0] and len(normalized(bpe, empty)) == 0


def test_texts_longer_than_a_view_beside_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.bpe.texts.VIEW_BYTES", 300)
    texts = ["x", "".join(sample()[:20]), "", "y", "z" * 7_000, *sample()[:30], ""]
    assert ours(trained("gpt4o"), texts) == of_library(trained("gpt4o"), texts)


def test_special_tokens_in_text_stay_text() -> None:
    bpe = trained("gpt2")
    text = f"a{EOS}b {EOS}\n<|endoftext |>"
    assert bpe.eos_id not in ours(bpe, [text])[0]
    assert ours(bpe, [text]) == of_library(bpe, [text])


@settings(max_examples=60)
@given(
    texts=st.lists(
        st.one_of(nasty(), st.sampled_from(["<tool>", "a<tool>b", "<too", "é\u0301x", "<<tool>>"])),
        max_size=5,
    )
)
def test_texts_with_added_tokens_go_to_the_library(texts: list[str]) -> None:
    for nfc in (False, True):
        bpe = trained("llama3", nfc=nfc, added=("<tool>", "e\u0301x"))
        assert bpe.engine is not None and "2 added tokens" in how(bpe)
        assert ours(bpe, texts) == of_library(bpe, texts)
    added = bpe.tokenizer.token_to_id("<tool>")
    assert [added in row for row in ours(bpe, ["<tool>", "tool", "x<tool>y"])] == [True, False, True]


@settings(max_examples=150)
@given(texts=st.lists(nasty(), max_size=6))
@example(texts=["plain", "cafe\u0301", "\u1112\u1161\u11ab", "가\u11a8", "\u212b", "q\u0307\u0323", "বো"])
def test_canonical_composition(texts: list[str]) -> None:
    bpe = trained("gpt4o", nfc=True)
    assert bpe.nfc and bpe.engine is not None
    column = pa.chunked_array([pa.array(texts, pa.string())])
    composed = normalized(bpe, column)
    assert composed.type == pa.string()
    assert composed.to_pylist() == [bpe.tokenizer.normalizer.normalize_str(text) for text in texts]
    rows = ours(bpe, texts)
    assert rows == of_library(bpe, texts)
    assert [decode(bpe.tokenizer, row) for row in rows] == composed.to_pylist()
    plain = trained("gpt4o")
    assert not plain.nfc and normalized(plain, column) is column


def test_composition_of_every_character_beside_others() -> None:
    bpe = trained("gpt2", nfc=True)
    texts = [
        f"{chr(code)}\u0301 a{chr(code)}\u0327{chr(code)}"
        for code in range(0x30000)
        if not 0xD800 <= code < 0xE000
        and (unicodedata.combining(chr(code)) or unicodedata.decomposition(chr(code)) or code % 97 == 0)
    ]
    assert normalized(bpe, pa.chunked_array([texts])).to_pylist() == [
        bpe.tokenizer.normalizer.normalize_str(text) for text in texts
    ]


def test_what_the_kernels_do_not_know_is_the_librarys() -> None:
    base = trained("gpt2")
    unknown = {
        "its pattern": changed(base, pre_tokenizer=sequence(split(r"\w+|\W+"), byte_level(False))),
        "cuts behind": changed(base, pre_tokenizer=sequence(byte_level(True), digits(True))),
        "chance": changed(base, model={**json.loads(base.tokenizer.to_str())["model"], "dropout": 1e-9}),
    }
    assert unknown["its pattern"].engine is None and "its pattern" in how(unknown["its pattern"])
    assert "(dropout)" in how(unknown["chance"])
    assert "cuts behind" in how(unknown["cuts behind"])
    texts = ["Hello, world's  end\n", "", "日本語 12"]
    bpe = unknown["its pattern"]
    assert ours(bpe, texts) == of_library(bpe, texts)
    assert "GPT-2" in how(base) and "library" not in how(base)


def test_other_normalizers_are_refused_if_they_alter_text() -> None:
    with pytest.raises(UserError, match="does not give back"):
        changed(trained("gpt2"), normalizer={"type": "NFKC"})
    with pytest.raises(UserError, match="does not give back"):
        changed(trained("gpt2"), normalizer={"type": "Lowercase"})


def test_a_full_table_changes_no_id() -> None:
    bpe = trained("gpt4o")
    content = json.loads(bpe.tokenizer.to_str())
    texts = sample()[:300]
    column = pa.chunked_array([texts])
    wanted = encode(bpe, column)
    for slots, long_bytes, long_ids in ((8, 40, 8), (64, 300, 30), (256, 1, 1), (2, 1 << 10, 1 << 10)):
        table = new_table(slots, long_bytes, long_ids)
        small = bpe._replace(engine=Engine(content, read(content), table))
        for _ in range(2):
            ids, offsets = encode(small, column)
            assert np.array_equal(ids, wanted[0]) and np.array_equal(offsets, wanted[1])
        assert table.counters[EMPTIED] > 0


def test_threads_take_turns_at_the_table() -> None:
    bpe = trained("llama3")
    assert bpe.engine is not None
    bpe.engine.forget()
    parts = [sample()[start::7] for start in range(7)]
    wanted = [of_library(bpe, part) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda part: ours(bpe, part), parts)) == wanted


def strings(value: Any) -> Iterator[str]:
    """Every string in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def texts_in(file: Path) -> Iterator[str]:
    """The texts of a file: every string of JSON, every member of a tar, else all of it, unpacked, markup and all."""
    data = file.read_bytes()
    if file.name.endswith(".tar.gz"):
        with tarfile.open(file) as tar:
            read_files = (tar.extractfile(member) for member in tar if member.isfile())
            yield from (opened.read().decode("utf-8", "replace") for opened in read_files if opened)
        return
    with contextlib.suppress(OSError, EOFError):  # of a name that says so, and broken: as it is
        data = gzip.decompress(data) if file.suffix == ".gz" else data
        data = bz2.decompress(data) if file.suffix == ".bz2" else data
    name = file.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        for line in data.splitlines():
            yield from strings(json.loads(line))
    else:
        yield data.decode("utf-8", "replace")


def real_files() -> list[Path]:
    return sorted(file for file in DATA.rglob("*") if file.is_file())


def beginning(file: Path, budget: int) -> list[str]:
    """The first texts of a file, so many characters together."""
    taken, left = [], budget
    for text in texts_in(file):
        if left <= 0:
            break
        taken.append(text[:left])
        left -= len(text)
    return taken


def spread(file: Path, budget: int, window: int = 10_000) -> list[str]:
    """Its texts; of more characters than `budget`, so many in windows from all parts of it."""
    texts = list(texts_in(file))
    step = -(-sum(map(len, texts)) // budget)
    if step <= 1:
        return texts
    windows = [text[at : at + window] for text in texts for at in range(0, len(text), window)]
    chosen, taken, seen = [], 0, 0
    for text in windows:
        seen += len(text)
        if taken * step < seen:
            chosen.append(text)
            taken += len(text)
    return chosen


BUDGET = 4_000


@pytest.fixture(scope="session")
def beginnings(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    """Every file of the shared data: unpacked once, for all forms."""

    def make(folder: Path) -> None:
        found = {str(file): beginning(file, BUDGET) for file in real_files()}
        (folder / "texts.json").write_text(json.dumps(found))

    text = (shared(tmp_path_factory, "beginnings", make) / "texts.json").read_text()
    return {Path(name): texts for name, texts in json.loads(text).items()}


def _check_real(form: str, files: Iterable[tuple[Path, list[str]]]) -> None:
    bpe = trained(form, size=6000)
    seen = 0
    for file, taken in files:
        seen += sum(map(len, taken))
        if ours(bpe, taken) != of_library(bpe, taken):
            wrong = next(t for t in taken if ours(bpe, [t]) != of_library(bpe, [t]))
            pytest.fail(f"{form}, {file.relative_to(DATA)}: {wrong[:200]!r}")
    assert seen > BUDGET * 300, "there are hundreds of files"


NO_DATA = pytest.mark.skipif(
    not (DATA / "natural").is_dir(), reason="the real text (../shared/data) is not here"
)


@NO_DATA
@pytest.mark.parametrize("form", ["gpt2", "llama3", "gpt4o", "deepseek"])
def test_some_of_every_real_file(form: str, beginnings: dict[Path, list[str]]) -> None:
    _check_real(form, beginnings.items())


@NO_DATA
@pytest.mark.parametrize("third", range(3))
def test_real_text_of_all_parts(third: int) -> None:
    """Every file by one of the forms that `tokenizer` trains, whole or in windows of all its parts: the library takes a
    minute for 40 MB."""
    form = ["gpt2", "llama3", "gpt4o"][third]
    files = [file for file in real_files() if crc32(str(file.relative_to(DATA)).encode()) % 3 == third]
    _check_real(form, ((file, spread(file, 10 * BUDGET)) for file in files))
