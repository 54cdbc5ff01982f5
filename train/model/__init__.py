"""The model: a readable Llama-style decoder, its initialisation, and what it costs to compute."""
