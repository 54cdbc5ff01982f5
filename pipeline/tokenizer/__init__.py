"""A byte-level tokenizer, trained on a deterministic sample of the train split or given by the user, and measured.

`sample.py` draws the documents, `sample_words.py` has their words counted (`words.py`), `train.py` learns from them, with `merges/` and
`unigram/`; `measure.py` writes `stats.json`, with `merge_origins.py` and `vocabulary.py`; `compare/` trains kinds of
tokenizers beside each other. `pipeline/bpe` loads and encodes.
"""
