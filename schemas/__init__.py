"""The contracts: Arrow schemas and pydantic models through which `pipeline` and `train` meet.

Nothing here imports either of them. `python -m corpusmill.schemas` rewrites the JSON Schemas in `schemas/json/`.
"""
