"""megatron-core's `IndexedDataset`: the digest of every sequence, and where documents begin."""

import sys

import common

common.borrow_torch()
from megatron.core.datasets.indexed_dataset import IndexedDataset  # noqa: E402

found = IndexedDataset(sys.argv[1])
common.say([[common.digest(found[i]) for i in range(len(found))], found.document_indices.tolist()])
