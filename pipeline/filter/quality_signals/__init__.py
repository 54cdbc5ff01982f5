"""A score out of the stored signals: a generalised additive model, its training, and what weighed most in a score."""
