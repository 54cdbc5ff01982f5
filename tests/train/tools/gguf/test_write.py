"""GGUF files hold what the model has, and computed by llama.cpp's conventions give its logits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFWriter

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.gguf.vocabulary import CONTROL, NORMAL, UNUSED, vocabulary
from corpusmill.train.tools.gguf.write import (
    ARCHITECTURES,
    add_model,
    add_tensors,
    add_vocabulary,
    described,
    encoded,
    interleaved,
    publish,
    tensors,
)
from tests.train.generate.models import BYTES, EOS, byte_tokenizer
from tests.train.models import KINDS, MOE, SMALL, model_of
from tests.train.test_commands import command
from tests.train.tools.gguf.llama import logits, read

WIDE = {"dim": 64, "ffn_dim": 96, "heads": 4, "kv_heads": 2, "vocab_multiple": 16}
EXPRESSED = [
    kind for kind, (name, given) in KINDS.items() if name in ARCHITECTURES and "yarn" not in kind and "window" not in given
]  # fmt: skip


def written(model: Decoder, file: Path, kind: str) -> Path:
    """The file of a model with the byte-level tokenizer."""
    rows = model.embedding.num_embeddings
    made = described(model.config, rows, 24, kind)
    writer = GGUFWriter(None, ARCHITECTURES[made.name])
    add_model(writer, model.config, made, kind)
    words = vocabulary(byte_tokenizer().to_str().encode(), rows, "tokenizer.json")
    add_vocabulary(writer, words, EOS, None)
    add_tensors(writer, model.config, made, model.state_dict(), kind)
    publish(writer, Folder(file))
    return file


@pytest.mark.parametrize("kind", EXPRESSED)
def test_by_the_conventions_of_llama_cpp_it_computes_our_logits(kind: str, tmp_path: Path) -> None:
    model = model_of(KINDS[kind][1], vocab_size=BYTES)
    fields, found = read(written(model, tmp_path / "model.gguf", "f32"))
    ids = torch.randint(0, BYTES, (24,), generator=torch.Generator().manual_seed(0))
    ours = model(ids[None])[0].detach()
    torch.testing.assert_close(logits(fields, found, ids).float(), ours, atol=1e-5, rtol=1e-5)
    if fields["general.architecture"] == "llama":  # and would not with rows where they were
        heads = {"q": model.config.heads, "k": model.config.key_value_heads}
        for name in list(found):
            letter = name.split(".")[-2].removeprefix("attn_")
            if letter in heads:
                half = model.config.head_size // 2
                back = found[name].reshape(heads[letter], half, 2, *found[name].shape[1:]).swapaxes(1, 2)
                found[name] = back.reshape(found[name].shape)
        assert (logits(fields, found, ids).float() - ours).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_0"])
def test_every_tensor_is_what_the_type_makes_of_it(kind: str, tmp_path: Path) -> None:
    model = model_of({**WIDE, "tie_embeddings": False}, vocab_size=BYTES)
    made = described(model.config, model.embedding.num_embeddings, 24, kind)
    ours = dict(tensors(model.config, made, model.state_dict()))
    reader = GGUFReader(written(model, tmp_path / "model.gguf", kind))
    assert [one.name for one in reader.tensors] == list(ours)
    steps = {"f32": 0.0, "f16": 2.0**-11, "q8_0": 0.57 / 127, "q4_0": 0.14}  # of the largest weight
    for one in reader.tensors:
        plain = ours[one.name].numpy()
        if plain.ndim == 1:
            wanted = gguf.GGMLQuantizationType.F32
        elif kind == "q4_0" and one.name in ("token_embd.weight", "output.weight"):
            wanted = gguf.GGMLQuantizationType.Q8_0
        else:
            wanted = gguf.GGMLQuantizationType[kind.upper()]
        assert one.tensor_type == wanted, one.name
        there = gguf.dequantize(one.data, one.tensor_type)
        assert there.shape == plain.shape and there.dtype == np.float32
        np.testing.assert_array_equal(there, gguf.dequantize(gguf.quants.quantize(plain, wanted), wanted))
        assert np.abs(there - plain).max() <= steps[kind] * np.abs(plain).max(), one.name
        if kind == "f16" and plain.ndim == 2:
            np.testing.assert_array_equal(there, plain.astype(np.float16).astype(np.float32))


def test_keys_are_those_of_the_model_and_of_its_tokenizer(tmp_path: Path) -> None:
    model = model_of({**WIDE, "head_dim": 24, "rope_theta": 500.0}, vocab_size=BYTES)
    fields, found = read(written(model, tmp_path / "model.gguf", "q8_0"))
    assert fields["general.architecture"] == "llama" and fields["general.file_type"] == 7
    keys = {name.removeprefix("llama."): value for name, value in fields.items() if name.startswith("llama.")}
    assert keys.pop("attention.layer_norm_rms_epsilon") == pytest.approx(1e-5)
    assert keys == {
        "vocab_size": 272, "context_length": 24, "block_count": 3, "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 24,
        "attention.value_length": 24, "rope.dimension_count": 24, "rope.freq_base": 500.0,
    }  # fmt: skip
    words = {
        name.removeprefix("tokenizer.ggml."): value
        for name, value in fields.items()
        if name.startswith("tokenizer.")
    }
    assert (words["model"], words["pre"]) == ("gpt2", "gpt-2")
    assert (words["bos_token_id"], words["eos_token_id"]) == (EOS, EOS)
    assert (words["add_bos_token"], words["add_eos_token"]) == (True, False)
    assert words["merges"] == ["t h", "th e", "i n", "Ġ the", "e r"]
    assert len(words["tokens"]) == len(words["token_type"]) == len(found["token_embd.weight"]) == 272
    assert words["tokens"][0] == "<|endoftext|>" and words["tokens"][BYTES:] == [
        f"[PAD{n}]" for n in range(BYTES, 272)
    ]
    types = [CONTROL, *[NORMAL] * (BYTES - 3), CONTROL, CONTROL, *[UNUSED] * (272 - BYTES)]
    assert words["token_type"] == types
    assert "output.weight" not in found  # tied


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"preset": "gpt2"}, "f16", "model.positions: learned: GGUF is written for Llama's and Qwen3's"),
        ({"moe": MOE}, "f16", "model.moe: "),
        (KINDS["eurobert"][1], "f16", "model.causal: False: GGUF is written for Llama's and Qwen3's"),
        (KINDS["qwen3 local"][1], "f16", "model.window: 6: GGUF is written for Llama's and Qwen3's"),
        (KINDS["deepseek"][1], "f16", "model.mla: "),
        ({"nope_every": 2}, "f16", "model.nope_every: 2"),
        ({"value_embeddings": "all"}, "f16", "model.value_embeddings: all"),
        ({"norm": "layernorm"}, "f16", "model.norm: layernorm"),
        ({"activation": "gelu"}, "f16", "model.activation: gelu"),
        (KINDS["llama yarn"][1], "f16", "model.rope_scaling.kind: yarn"),
        ({**KINDS["llama llama3"][1], "qk_norm": True}, "f16", "model.rope_scaling.kind: llama3"),
        ({"dim": 48}, "q8_0", "model.dim: 48 is no multiple of 32, as --type q8_0 needs; give f16 or f32"),
        ({"ffn_dim": 48}, "q4_0", "model.ffn_dim: 48 is no multiple of 32"),
        ({"head_dim": 12, "ffn_dim": 64}, "q8_0", "model.heads x head_dim: 48 is no multiple of 32"),
    ],
)  # fmt: skip
def test_what_gguf_cannot_express_is_refused_by_its_key(
    settings: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(UserError) as error:
        described(ModelConfig.model_validate({**SMALL, **settings}), 96, 24, kind)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_numbers_that_a_type_does_not_have_are_refused_by_the_tensors_name() -> None:
    bad = torch.ones(2, 32)
    bad[1, 3] = float("nan")
    with pytest.raises(WorkError, match=r"blk.0.ffn_up.weight: holds numbers that are not finite"):
        encoded("blk.0.ffn_up.weight", bad, "f32")
    with pytest.raises(WorkError, match=r"output.weight: holds numbers beyond float16; export --type f32"):
        encoded("output.weight", torch.full((2, 32), 7e4), "f16")
    assert encoded("output.weight", torch.full((2, 32), 7e4), "f32").max() == 7e4


def test_pairs_of_a_head_come_to_lie_beside_each_other() -> None:
    rows = torch.arange(16.0)  # two heads of eight dimensions
    assert interleaved(rows, 2).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    assert torch.equal(interleaved(rows[:, None] * torch.ones(3), 2)[:, 1], interleaved(rows, 2))


def test_a_run_is_exported_by_the_command(reader: Path, tmp_path: Path) -> None:
    config, folder = open_run(reader / "config.yaml")
    run = Folder(tmp_path / "run")
    for entry in folder.list():
        (run / entry.path).write((folder / entry.path).read())
    (run / "chat_template.jinja").write(b"{{ messages[0].content }}")
    printed = command("export", run.url, tmp_path / "out", "--format", "gguf", "--type", "f32")
    file = tmp_path / "out/reader-F32.gguf"
    assert printed == f"{file}: llama of step 40, f32\n"
    fields, found = read(file)
    assert fields["general.name"] == "reader" and fields["tokenizer.ggml.pre"] == "gpt-2"
    assert fields["tokenizer.chat_template"] == "{{ messages[0].content }}"
    model = load_model(config, newest_checkpoint(folder), 512, torch.device("cpu"))
    ids = torch.randint(0, 512, (200,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = model(ids[None])[0]
    torch.testing.assert_close(logits(fields, found, ids).float(), ours, atol=1e-4, rtol=1e-4)
    assert [entry.path for entry in Folder(tmp_path / "out").list()] == [file.name]

    with pytest.raises(UserError, match="reader-F32.gguf: exists; name another file, or delete it"):
        command("export", run.url, tmp_path / "out", "--format", "gguf", "--type", "f32")
    result = json.loads(command("export", run.url, tmp_path / "my.gguf", "--format", "gguf", "--json"))
    assert result["output"] == str(tmp_path / "my.gguf") and result["notes"] == []
    assert (result["type"], result["tokenizer"], result["architecture"]) == ("f16", "gpt-2", "llama")
    assert result["bytes"] < (tmp_path / "my.gguf").stat().st_size < file.stat().st_size


def test_options_are_of_one_format(reader: Path, tmp_path: Path) -> None:
    run, out = str(reader / "run"), str(tmp_path / "out")
    for arguments, message in (
        (("--format", "onnx"), "--format: must be hf, gguf or peft, is 'onnx'"),
        (("--format", "gguf", "--dtype", "float16"), "--dtype: is of --format hf and peft; give --type"),
        (("--type", "f16"), "--type: is of --format gguf; give --dtype"),
        (("--format", "gguf", "--type", "q4_k"), "--type: must be f32, f16, q8_0, q4_0, is 'q4_k'"),
        (("--format", "gguf", "--type", "q8_0"), "model.dim: 48 is no multiple of 32"),
    ):
        with pytest.raises(UserError, match=message):
            command("export", run, out, *arguments)
    assert not Path(out).exists()


def test_without_the_package_the_error_says_what_to_install(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"needs the package gguf: pip install 'corpusmill\[gguf\]'"):
        command("export", str(reader / "run"), tmp_path / "out", "--format", "gguf")
