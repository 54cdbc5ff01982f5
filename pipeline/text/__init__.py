"""What several stages know of text: UTF-8, code-point tables, the word rule, words, shingles, MinHash, winnowing, splicing."""
