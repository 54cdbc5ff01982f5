"""Shards -> model. `trainer` is the loop; `data` streams, `model` computes, `checkpoint` survives, `evaluate` judges.

Importing `train` or `corpusmill.train.commands.train` loads neither torch nor anything else that is heavy."""
