"""`generate` of an exported model: `transformers_generate.py FOLDER REQUEST`, with the request as JSON: `threads` and the sampling.
Answers each line of stdin, [batch, prompt's length, new tokens], with the seconds that it took. PyTorch is borrowed from `BORROWED`."""

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
print(json.dumps(transformers.__version__), flush=True)
for line in sys.stdin:
    batch, length, new = json.loads(line)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, model.config.vocab_size, (batch, length), generator=generator)
    began = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=True,
            pad_token_id=0, **request["sampling"],
        )  # fmt: skip
    assert out.shape == (batch, length + new)
    print(json.dumps(time.perf_counter() - began), flush=True)
