"""`datasets.load_dataset("webdataset", …)`, streamed or not."""

import sys

import common
from datasets import load_dataset

found = load_dataset(
    "webdataset", data_files={"train": sys.argv[1]}, split="train", streaming=sys.argv[2] == "streaming",
    cache_dir=sys.argv[3],
)  # fmt: skip
common.say([common.content_of(one) for one in found])
