"""Optimizers, weight-decay groups, and the learning rate over the tokens of a run."""

from corpusmill.train.optim.make import make_optimizer
from corpusmill.train.optim.schedule import learning_rate, rate_at, set_rate

__all__ = ["learning_rate", "make_optimizer", "rate_at", "set_rate"]
