"""Opening the data of a run by its config, and what was kept of it in the run's folder."""

from __future__ import annotations

from collections.abc import Callable

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import RunData, TrainConfig
from corpusmill.train.data.shards import Shards, open_conversations, open_data, open_tokens
from corpusmill.train.run_folder import DATA, read_run_data, run_data


def open_run_data(config: TrainConfig, log: Callable[[str], None] | None = None) -> Shards:
    """The data of a run. Tokens made from texts are kept in `data.token_cache`, or in the run's folder."""
    run, data = Folder(config.output_url), config.data
    cache = data.token_cache or str(run / "tokens")
    if data.conversations is not None:
        # A run that has begun has tokenizer and template of the model that it starts from.
        start = run.url if (run / DATA).exists() else config.init_from
        unrelated = config.objective is not None and config.objective.loss == "kto"
        return open_conversations(data, cache, start, unrelated, log)
    return open_data(data, open_tokens(data.shards, cache, data.tokenizer, log))


def run_vocabulary(config: TrainConfig, run: Folder) -> RunData:
    """The size of a run's vocabulary and its end-of-text token, as the run kept them, or from its shards."""
    kept = read_run_data(run)
    if kept is not None:
        return kept
    found = open_run_data(config).set
    return run_data(config.data.shards, run, found.vocab_size, found.eos_id)
