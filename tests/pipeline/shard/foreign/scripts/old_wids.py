"""`wids.ShardListDataset(index.json)`, by number."""

import sys

import common

common.borrow_torch()
import wids  # noqa: E402

found = wids.ShardListDataset(sys.argv[1], cache_dir=sys.argv[2], keep=True)
samples = []
for number in range(len(found)):
    one = {name.removeprefix("."): value for name, value in found[number].items()}
    samples.append(common.content_of(one))
common.say(samples)
