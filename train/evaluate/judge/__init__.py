"""Blind pairwise ratings by people: pairs of texts (`pairs`), a local page (`server`), the file of ratings (`ratings`), and what they
show (`ranking`, `agreement`, `report`)."""
