"""What runs after pretraining have beside those of pretraining, on the same trainer: objectives of preferences, distillation, adapters
with PEFT's file format, and the model that a run starts from."""
