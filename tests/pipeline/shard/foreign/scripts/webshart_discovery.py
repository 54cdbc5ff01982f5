"""webshart: the members of every tar by its `.json` file, each with the bytes that it reads."""

import hashlib
import sys

import common
import webshart

found = webshart.discover_dataset(sys.argv[1], metadata=sys.argv[2])
answer = {}
for number in range(found.num_shards):
    shard = found.open_shard(number)
    for place, name in enumerate(shard.filenames()):
        answer[name] = hashlib.sha256(shard.read_file(place)).hexdigest()
common.say(answer)
