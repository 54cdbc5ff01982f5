"""Documents that hold items of evaluation sets: an index of their n-grams, a scan of every partition, the judgement,
and the table of what was found. No text of an evaluation set is in any output."""
