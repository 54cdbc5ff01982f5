"""safetensors as others read them, written and read in parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.train.checkpoint import files
from corpusmill.train.checkpoint.files import CODES, Content, fill, hash_file, raw, slabs, write_file

SHAPES = [(3, 5), (), (0, 4), (7,), (2, 3, 4)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "AT_ONCE", 16)  # bytes


def test_a_file_is_what_the_library_reads(tmp_path: Path) -> None:
    tensors = {
        f"{code}.{shape}": torch.randint(0, 2, shape).to(dtype)
        for dtype, code in CODES.items()
        for shape in SHAPES
    }
    contents = [Content(name, t.dtype, tuple(t.shape), partial(raw, t)) for name, t in tensors.items()]
    file, places = write_file(Folder(tmp_path) / "a.safetensors", contents)
    data = (tmp_path / "a.safetensors").read_bytes()
    assert (file.bytes, file.xxh3) == (len(data), checksum(data))
    assert hash_file(Folder(tmp_path), "a.safetensors", len(data)) == file.xxh3
    found = load_file(tmp_path / "a.safetensors")
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name].float(), tensor.float()), name
        assert places[name] % tensor.dtype.itemsize == 0
        size = tensor.numel() * tensor.dtype.itemsize
        assert data[places[name] : places[name] + size] == b"".join(bytes(part) for part in raw(tensor))
    assert len(data) <= len(save(tensors)) + 64


@given(st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4))
def test_any_part_of_a_box_is_read_in_small_spans(
    tmp_path_factory: pytest.TempPathFactory, dims: list[tuple[int, float, float]]
) -> None:
    sizes = tuple(size for size, _, _ in dims)
    start = tuple(min(int(a * size), size - 1) for size, a, _ in dims)
    lengths = tuple(1 + int(b * (size - at - 1)) for (size, _, b), at in zip(dims, start, strict=True))
    folder = Folder(tmp_path_factory.mktemp("box"))
    tensor = torch.arange(torch.Size(sizes).numel(), dtype=torch.int32).reshape(sizes)
    (folder / "x").write(b"head" + b"".join(bytes(part) for part in raw(tensor)))
    target = torch.zeros(lengths, dtype=torch.int32)
    wanted = list(slabs(target, "x", 4, sizes, start, torch.int32))
    assert all(slab.bytes <= 16 for slab in wanted)
    fill(folder, [(slab, torch.int32) for slab in wanted])
    expected = tensor[tuple(slice(at, at + n) for at, n in zip(start, lengths, strict=True))]
    assert torch.equal(target, expected)
