"""CorpusMill: raw text in, a trained language model out, and an account of every step between.

The folders `pipeline`, `train`, `schemas` and `configs` stand at the top of the repository and are linked here, so that
everything is imported as `corpusmill.…` and nothing else is put on the import path.
"""
