"""Opening the data of a run by its config, with what it reads again of an earlier run; and what was kept of it in the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import vocabulary
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.training import RunData, TrainConfig
from corpusmill.train.data.curriculum import with_difficulties
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import Shards, Source, open_conversations, open_data, open_tokens
from corpusmill.train.run_folder import DATA, open_run, read_run_data, run_data

Log = Callable[[str], None]


def open_run_data(config: TrainConfig, log: Log | None = None) -> Shards:
    """The data of a run. Tokens made from texts are kept in `data.token_cache`, or in the run's folder."""
    run, data = Folder(config.output_url), config.data
    cache = data.token_cache or str(run / "tokens")
    if data.conversations is not None:
        # A run that has begun has tokenizer and template of the model that it starts from.
        base = None if config.start is None else config.start.run
        start = run.url if (run / DATA).exists() else base
        unrelated = config.objective is not None and config.objective.loss == "kto"
        virtual = 0 if config.adapter is None else config.adapter.virtual
        return open_conversations(data, cache, start, unrelated, virtual, log)
    return completed(data, open_data(data, open_tokens(data.shards, cache, data.tokenizer, log)), log)


def completed(data: DataConfig, shards: Shards, log: Log | None = None) -> Shards:
    """The shard set with how hard its sequences are, under a curriculum, and with what it reads again of an earlier run. Raises what
    `with_difficulties` and `with_replay` raise."""
    if data.curriculum is not None:
        shards = with_difficulties(data, shards)
    return with_replay(data, shards, log)


def with_replay(data: DataConfig, shards: Shards, log: Log | None = None) -> Shards:
    """The shard set with the sources that `data.replay` adds, each with its share of the tokens; those that the earlier run replayed
    itself are among them.

    Raises `UserError` if that run's tokenizer numbers tokens differently, if its lines were conversations, or if both sets have a
    source of one name.
    """
    if data.replay is None:
        return shards
    config, run = open_run(data.replay.run)
    if config.data.conversations is not None:
        raise UserError(
            f"data.replay.run: {run} was trained on conversations: name a run on texts, or add its lines to data.shards"
        )
    earlier = open_run_data(config, log)
    if vocabulary(earlier.tokenizer()) != vocabulary(shards.tokenizer()):
        raise UserError(
            f"data.replay.run: {run} has another tokenizer than {shards.folder}: make shards with that run's tokenizer.json"
            " (tokenizer.path in the recipe)"
        )
    plan = make_plan(config.data, earlier, config.seed)
    trained = plan.trained(config.schedule.steps)
    shares, train, validation = dict[str, float](), dict(shards.train), dict(shards.validation)
    for source, count in zip(plan.sources, trained.tolist(), strict=True):
        name = data.replay.prefix + source.name
        if name in shards.train or name in shards.validation:
            raise UserError(
                f"data.replay: {shards.folder} and {run} both have a source '{name}': set data.replay.prefix, such as to old-"
            )
        if count:
            shares[name] = data.replay.share * count / int(trained.sum())
            train[name] = _named(earlier.train[source.name], name)
            if source.name in earlier.validation:
                validation[name] = _named(earlier.validation[source.name], name)
    return replace(shards, train=train, validation=validation, replayed=shares)


def _named(source: Source, name: str) -> Source:
    return replace(source, name=name, difficulty=None)


def run_vocabulary(config: TrainConfig, run: Folder) -> RunData:
    """The size of a run's vocabulary and its end-of-text token, as the run kept them, or from its shards."""
    kept = read_run_data(run)
    if kept is not None:
        return kept
    found = open_run_data(config).set
    return run_data(config.data, run, found.vocab_size, found.eos_id)
