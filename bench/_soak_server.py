"""The server that `serve_soak` troubles: a small model of random weights, on a free port, whose address it prints."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corpusmill.common.hugging_face import alphabet
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.serve.app import Served
from corpusmill.train.generate.serve.server import allowed_hosts, listen, place, serve
from corpusmill.train.generate.serve.worker import Worker
from corpusmill.train.model.decoder import Decoder

END = "<|endoftext|>"
ROWS, QUEUE, CONTEXT = 8, 16, 512


def main() -> None:
    torch.set_num_threads(1)
    letters = [END, *sorted(alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    config = ModelConfig.model_validate({"dim": 64, "layers": 2, "heads": 4, "kv_heads": 2})
    opened = Opened(Runner(Decoder(config, len(letters), 0), len(letters), 0, CONTEXT), tokenizer, 0)
    with listen("127.0.0.1", 0) as listener:
        hosts = allowed_hosts("127.0.0.1", listener)
        served = Served(opened, Chat(opened), Worker(opened, ROWS, QUEUE), "soak", hosts=hosts)
        serve(served, listener, lambda: print(place(listener), flush=True))


if __name__ == "__main__":
    main()
