"""What a stage, a rule or a threshold buys, in bits per byte of held-out text: recipes that differ in one thing, measured on the same
text. Stands above the pipeline and the trainer, which do not know each other."""
