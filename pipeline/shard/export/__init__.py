"""Shard sets for other tools: `tokens.py` for those that read token files of their own (Megatron-LM, datatrove),
`sidecars.py` for those that read the tars by an index of their own (DALI, webshart); `run.py` does all of one."""
