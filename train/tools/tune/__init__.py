"""Which settings are good: the learning rate range test, searches with Optuna, population-based training;
cross-validation."""
