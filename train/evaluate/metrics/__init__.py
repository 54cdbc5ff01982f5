"""Metrics of generated texts (`texts`, `answers`), of predicted labels (`classification`, `glue`) and of arithmetic (`arithmetic`):
functions of lists, whose results are estimates with intervals."""
