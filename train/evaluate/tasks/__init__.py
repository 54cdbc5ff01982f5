"""Evaluation on tasks: a task's YAML (`read`, `shipped/`) and rows (`data`, `fetch`) become prompts (`render`), tokens (`encode`)
and scored items (`score`, `metrics`); `run` does it for a run's checkpoint, `lm_eval` lets lm-evaluation-harness do it."""
