"""Optimizers, weight-decay groups, and the learning rate over the tokens of a run."""

from corpusmill.train.optim.make import learning_rate, make_optimizer, rate_at, set_rate

__all__ = ["learning_rate", "make_optimizer", "rate_at", "set_rate"]
