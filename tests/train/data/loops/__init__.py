"""Loops of other libraries over a stream, as their users write them: each sequence once, in one process or two, and the
exact continuation after an interruption. Their packages are no dependencies: `bench.peers.packages` fetches them."""
