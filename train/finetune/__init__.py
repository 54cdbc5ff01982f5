"""Objectives and parts of a model for training after pretraining: losses of preferences. The trainer is the one of pretraining."""
