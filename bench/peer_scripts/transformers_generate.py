"""Seconds of `generate` of an exported model: `transformers_generate.py FOLDER REQUEST`, with the request as JSON: `cases`, each a
batch, a prompt's length and new tokens; `rounds`; `threads`; and the sampling. PyTorch is borrowed from `BORROWED`."""

import json
import os
import sys
import time

sys.path += os.environ["BORROWED"].split(os.pathsep)
import torch
import transformers

request = json.loads(sys.argv[2])
torch.set_num_threads(request["threads"])
transformers.logging.set_verbosity_error()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="sdpa").eval()
model.generation_config.eos_token_id = None  # no text ends before its time
found = []
for batch, length, new in request["cases"]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, model.config.vocab_size, (batch, length), generator=generator)
    seconds = []
    for number in range(request["rounds"] + 1):
        began = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=True,
                pad_token_id=0, **request["sampling"],
            )  # fmt: skip
        assert out.shape == (batch, length + new)
        if number:  # the first one warms up
            seconds.append(time.perf_counter() - began)
    found.append(seconds)
print(json.dumps({"version": transformers.__version__, "seconds": found}))
