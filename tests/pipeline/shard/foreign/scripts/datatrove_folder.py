"""datatrove's `DatatroveFolderDataset`: windows of tokens with the positions in their documents."""

import sys

import common

common.borrow_torch()
from datatrove.utils.dataset import DatatroveFolderDataset  # noqa: E402

length = int(sys.argv[2])
found = DatatroveFolderDataset(
    sys.argv[1], length, filename_pattern="*.ds", token_size=int(sys.argv[3]), return_positions=True
)
samples = [found[i] for i in range(len(found))]
common.say([[one["input_ids"].tolist(), one["positions"].tolist()] for one in samples])
