"""A model as a GGUF file, which llama.cpp and what is built on it load: `vocabulary` is what the file says of the tokenizer, `write`
has keys and tensors."""
