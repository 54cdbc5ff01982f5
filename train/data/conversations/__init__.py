"""Conversations as a token shard set, made once and kept: lines of JSON are rendered by a chat template, answers become labels, and
whole conversations are packed into rows."""
