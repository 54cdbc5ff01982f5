"""The run's report: figures gathered from what the stages published (`facts`), drawn as one self-contained HTML page (`page`,
`drawings`) and written as a data card (`card`)."""
