"""What people read of an evaluation: `evaluation.html`, the model card, and where the model fails, all from the files that the
evaluation wrote into the run's folder."""
