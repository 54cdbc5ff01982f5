"""The folder as `transformers` loads it: our own reading of the files, and the library's in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import NotMeasured, environment
from corpusmill.common.hugging_face import config, special_tokens_map
from corpusmill.pipeline.bpe.encode import encode
from corpusmill.pipeline.bpe.load import load_bpe
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.corpus import words

EOS = "<|endoftext|>"
PARAMS = {"vocab_size": 600, "special_tokens": ["<|user|>", "<|end|>"], "vocab_multiple": 64}
TEXTS = [
    *(words(40, seed) for seed in range(40)),
    "", " ", "it's 12,345.67  x\n\n\ty ", "e\u0301 日本語 👩🏽‍🚀\u200b\ufeff", " ,.!?'s n't . ,", "\x00\x7f\r\n",
]  # fmt: skip
SCRIPT = """
import json, sys
from transformers import AutoTokenizer, PreTrainedTokenizerFast
texts = json.load(open(sys.argv[2]))
out = {}
for name, kind in (("auto", AutoTokenizer), ("fast", PreTrainedTokenizerFast)):
    made = kind.from_pretrained(sys.argv[1])
    ids = [made(text)["input_ids"] for text in texts]
    out[name] = {"ids": ids, "back": [made.decode(row) for row in ids], "class": type(made).__name__, "size": len(made),
                 "eos": [made.eos_token, made.eos_token_id], "bos": made.bos_token, "specials": sorted(made.all_special_tokens)}
print(json.dumps(out))
"""


def made(**params: object) -> bytes:
    texts = pa.chunked_array([pa.array(TEXTS, pa.large_string())])
    return train(texts, TokenizerParams.model_validate({**PARAMS, **params}))


def test_the_config_names_every_added_token_and_adds_none_to_texts() -> None:
    data = made()
    content = json.loads(config(data, EOS))
    assert content["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (content["eos_token"], content["bos_token"]) == (EOS, None)
    assert not content["add_bos_token"] and not content["add_eos_token"]
    decoder = content["added_tokens_decoder"]
    assert {int(key): row["content"] for key, row in decoder.items()} == {
        token["id"]: token["content"] for token in json.loads(data)["added_tokens"]
    }
    assert decoder["0"] == {
        "content": EOS, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True,
    }  # fmt: skip
    named = json.loads(special_tokens_map(data, EOS))
    assert named["eos_token"] == EOS
    assert (
        named["additional_special_tokens"][:2]
        == ["<|user|>", "<|end|>"]
        == content["additional_special_tokens"][:2]
    )
    assert EOS not in named["additional_special_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("release", ["5.3.0", "4.57.6"])
@pytest.mark.parametrize("pre_tokenizer", ["gpt2", "llama3", "gpt4o"])
def test_transformers_gives_the_same_ids(tmp_path: Path, pre_tokenizer: str, release: str) -> None:
    try:
        python = environment("transformers", (f"transformers=={release}", "tokenizers==0.22.2"))
    except NotMeasured as reason:
        pytest.skip(f"transformers: {reason}")
    data = made(pre_tokenizer=pre_tokenizer)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(data)
    (folder / "tokenizer_config.json").write_bytes(config(data, EOS))
    (folder / "special_tokens_map.json").write_bytes(special_tokens_map(data, EOS))
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    done = subprocess.run(
        [python, "-c", SCRIPT, folder, tmp_path / "texts.json"], capture_output=True, text=True, cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    bpe = load_bpe(data, EOS, "test")
    ids, offsets = encode(bpe, pa.chunked_array([pa.array(TEXTS, pa.large_string())]))
    expected = [ids[a:b].tolist() for a, b in pairwise(offsets)]
    names = sorted(token["content"] for token in json.loads(data)["added_tokens"])
    for kind, got in json.loads(done.stdout.strip().splitlines()[-1]).items():
        assert got["ids"] == expected, kind
        assert got["back"] == TEXTS, kind
        assert got["eos"] == [EOS, 0] and got["bos"] is None and got["size"] == bpe.vocab_size
        assert got["specials"] == names
