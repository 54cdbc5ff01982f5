"""`corpusmill compare`: two finished runs, document by document. `runs.py`: what is compared, and how far the recipes differ;
`join.py` pairs the rows of both ledgers; `answer.py` adds up; `words.py` and `page.py` show it."""
