"""The shipped fastText models: cards, licences, checksums. A checkout has the program that makes the two of ours."""
