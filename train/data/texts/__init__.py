"""Tars of text as a training run's input: our text shards, and foreign WebDataset tars that no index describes.

Each is tokenised once into a token shard set (`token_set.py`), which is read like any other."""
