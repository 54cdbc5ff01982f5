"""Other tools' readers on our shards, each in an environment of its own: `scripts/` runs there, and prints what it read
as one line of JSON."""
