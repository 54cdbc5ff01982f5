"""`corpusmill search`: trials as runs of their own, chosen by Optuna, kept in a journal that outlives the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from corpusmill.common.config import fields_at, load, override, read_yaml, validate
from corpusmill.common.errors import UserError, WorkError, nearest
from corpusmill.common.storage import Folder
from corpusmill.schemas.search import SearchConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.tools.tune.lr_find import diverged
from corpusmill.train.tools.tune.report import in_full, in_words, publish
from corpusmill.train.tools.tune.trial import Trial, check_trial, hold, number_at, objective, run_trials

GIVE_UP = 5  # trials in a row that end in an error, before any ends well


def search(path: str, settings: list[str] | None, log: Callable[[str], None]) -> dict[str, Any]:
    """Run or continue a search; returns what search.json holds. Raises `UserError` and `WorkError`."""
    config = load(SearchConfig, path, settings)
    base = override(read_yaml(config.config), [f"{k}={json.dumps(v)}" for k, v in config.settings.items()])
    check_keys(path, config)
    folder = Path(config.folder)
    if "://" in config.folder:
        raise UserError(f"{path}: output: {config.folder} is not a local folder: a search needs one")
    base.setdefault("data", {}).setdefault("token_cache", str(folder / "tokens"))
    train = validate(TrainConfig, {**base, "output": str(folder)}, config.config)
    if train.validation.every is None and config.objective.split(".")[0] == "validation":
        raise UserError(
            f"{config.config}: validation.every is null, and {path} compares {config.objective}: set it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = hold(folder / "lock")
    except BlockingIOError:
        raise UserError(f"{folder}: another search is running in it") from None
    with lock:
        from corpusmill.train.data.opening import open_run_data

        open_run_data(train, log)  # problems of the data are found before any trial; texts are encoded once
        same_search(folder, config, base)
        if config.sampler == "pbt":
            from corpusmill.train.tools.tune.population import evolve

            trials, more = evolve(config, base, train, folder, log)
        else:
            trials, more = optimise(config, base, train, folder, log), {}
    return publish(config, base, folder, trials, more)


def check_keys(path: str, config: SearchConfig) -> None:
    """Raise `UserError` for a key that no training config has."""
    for key in [*config.space, *config.settings]:
        parts = key.split(".")
        for depth, part in enumerate(parts):
            allowed = fields_at(TrainConfig, list(parts[:depth]))
            if allowed and part not in allowed:
                names = ", ".join(sorted(allowed))
                raise UserError(f"{path}: {key}: no such key{nearest(part, allowed)} (allowed here: {names})")
            if not allowed:
                break  # a mapping of free keys, such as data.weights


def same_search(folder: Path, config: SearchConfig, base: dict[str, Any]) -> None:
    """Record the search's config, or raise `UserError` if the folder holds another search; `trials` may differ."""
    now = json.loads(config.model_dump_json(exclude={"trials", "parallel", "name", "output", "config"}))
    now["the training config"] = json.loads(json.dumps(base))
    if config.sampler == "pbt":
        now["trials"] = config.total
    file = folder / "searched.json"
    if not file.exists():
        Folder(file).write(json.dumps(now, indent=1).encode())
        Folder(folder / "base.json").write(json.dumps(base, indent=1).encode())
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    other = [key for key in now if before.get(key) != now[key]]
    if other:
        raise UserError(
            f"{folder}: holds a search with another {', '.join(other)}: set it back, or give this search an output of its"
            f" own (--set output=...)"
        )


def optimise(
    config: SearchConfig, base: dict[str, Any], train: TrainConfig, folder: Path, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run the missing trials; returns all, as rows of search.json."""
    study, sampler = open_study(config, train, folder)
    import optuna
    from optuna.trial import TrialState

    running: dict[Path, tuple[Any, list[float | None]]] = {}

    def tell(trial: Any, value: float | None, state: Any, reason: str = "") -> None:
        trial.set_user_attr("reason", reason)
        study.tell(trial.number, None if state != TrialState.COMPLETE else value, state)
        row = {"number": trial.number, "value": value, "state": state.name.lower(), "reason": reason}
        values = in_full(decoded(trial.params, config))
        log(f"trial {trial.number} ({trial.number + 1} of {config.total})  {in_words(row)}  {values}")

    def starts() -> Iterator[Trial]:
        unfinished = study.get_trials(states=(TrialState.RUNNING,))
        while unfinished or len(study.get_trials(deepcopy=False)) < config.total:
            # Each trial has a sampler seeded by its number, so that a restarted search makes the same choices.
            number = unfinished[0].number if unfinished else len(study.get_trials(deepcopy=False))
            study.sampler = sampler(number)
            trial = optuna.trial.Trial(study, unfinished.pop(0)._trial_id) if unfinished else study.ask()
            values = suggest(trial, config)
            where = folder / f"trials/{trial.number:04d}"
            try:
                check_trial(base, values)
            except UserError as error:
                tell(trial, None, TrialState.PRUNED, str(error).splitlines()[0])
                continue
            running[where] = trial, []
            yield Trial(where, folder / "base.json", values)

    def should_stop(job: Trial) -> str:
        trial, losses = running[job.folder]
        for row in job.rows():
            losses.append(row["loss"])
            if reason := diverged(losses):
                return f"{reason}, at step {row['step']}"
            value = number_at(row, config.objective)
            if value is not None:
                if row["step"] not in study.get_trials(deepcopy=False)[trial.number].intermediate_values:
                    trial.report(value, row["step"])
                if trial.should_prune():
                    return f"not among the best at step {row['step']}: {value:.4f}"
        return ""

    bad = 0
    with closing(run_trials(starts(), config.parallel, should_stop)) as ended:
        for job in ended:
            trial, _ = running.pop(job.folder)
            problem = job.verdict or job.problem
            value = None if problem else objective(job, config.objective)
            if value is not None:
                tell(trial, value, TrialState.COMPLETE)
            else:  # that a trial was killed says nothing about its values
                state = TrialState.FAIL if problem.startswith("killed by") else TrialState.PRUNED
                tell(trial, None, state, problem or f"{config.objective} is not a finite number")
            bad = bad + 1 if problem and not job.verdict else 0
            if bad >= GIVE_UP and not study.get_trials(states=(TrialState.COMPLETE,)):
                raise WorkError(f"{job.folder}: {GIVE_UP} trials in a row have failed, this one: {problem}")
    return [
        {
            "number": trial.number, "state": trial.state.name.lower(),
            "value": trial.value if trial.state == TrialState.COMPLETE else None,  # Optuna's pruned ones have their last
            "reason": trial.user_attrs.get("reason", ""), "steps": max(trial.intermediate_values, default=0),
            "params": decoded(trial.params, config), "folder": str(folder / f"trials/{trial.number:04d}"),
        }
        for trial in study.get_trials(deepcopy=False)
    ]  # fmt: skip


def open_study(config: SearchConfig, train: TrainConfig, folder: Path) -> tuple[Any, Callable[[int], Any]]:
    """Optuna's study, in a journal in the search's folder, and the sampler for a trial of a certain number."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise UserError("search: needs Optuna: pip install 'corpusmill[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = folder / "journal.log"
    if journal.exists():  # of a process that was killed: its lock, and a line that it began
        journal.with_name("journal.log.lock").unlink(missing_ok=True)
        whole = journal.read_bytes()
        if whole and not whole.endswith(b"\n"):
            Folder(journal).write(whole[: whole.rfind(b"\n") + 1])

    class Grid(optuna.samplers.GridSampler):
        def after_trial(self, *_: Any) -> None:
            pass  # stops studies that Optuna itself runs

    def sampler(number: int) -> Any:
        seed = (config.seed + 1_000_003 * number) % 2**32
        if config.sampler == "grid":
            grid = {key: coded(config, key, parameter.grid()) for key, parameter in config.space.items()}
            return Grid(grid, seed=config.seed)
        if config.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)

    pruner: Any = optuna.pruners.NopPruner()
    if config.sampler == "successive_halving":
        first = config.halving.first or train.validation.every or 1
        pruner = optuna.pruners.SuccessiveHalvingPruner(first, config.halving.factor)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.create_study(
        storage=storage, study_name="search", direction=config.direction, load_if_exists=True, pruner=pruner
    )
    return study, sampler


def coded(config: SearchConfig, key: str, values: list[Any]) -> list[Any]:
    """Choices as JSON: Optuna takes no lists and no mappings."""
    return values if config.space[key].choices is None else [json.dumps(value) for value in values]


def decoded(params: dict[str, Any], config: SearchConfig) -> dict[str, Any]:
    """A trial's values, as in YAML."""
    known = {key: value for key, value in params.items() if key in config.space}
    return {k: v if config.space[k].choices is None else json.loads(v) for k, v in known.items()}


def suggest(trial: Any, config: SearchConfig) -> dict[str, Any]:
    """The trial's values: its own, or new ones."""
    for key, parameter in config.space.items():
        if parameter.choices is not None:
            trial.suggest_categorical(key, coded(config, key, parameter.choices))
        elif config.sampler == "grid":
            trial.suggest_categorical(key, parameter.grid())
        elif parameter.whole:
            trial.suggest_int(key, *parameter.bounds, step=parameter.step or 1, log=parameter.log)
        else:
            trial.suggest_float(key, *parameter.bounds, step=parameter.step, log=parameter.log)
    return decoded(trial.params, config)
