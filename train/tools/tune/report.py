"""The results of a search: search.json, the best config, a page of plots, and a table for the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.charts import Dot, Line, line_chart, page, scatter
from corpusmill.common.config import override
from corpusmill.common.storage import Folder
from corpusmill.schemas.search import SearchConfig
from corpusmill.train.run_folder import write_json


def publish(
    config: SearchConfig,
    base: dict[str, Any],
    folder: Path,
    trials: list[dict[str, Any]],
    more: dict[str, Any],
) -> dict[str, Any]:
    """Write search.json, best.yaml and search.html; returns the content of search.json."""
    done = [row for row in trials if row["value"] is not None]
    best = ranked(config, done)[0] if done else None
    result = {
        "v": 1, "name": config.name, "output": str(folder), "sampler": config.sampler, "objective": config.objective,
        "direction": config.direction, "seed": config.seed, "best": best, "trials": trials, **more,
    }  # fmt: skip
    if best:
        result["best_config"] = str(folder / "best.yaml")
        words = f"# Best of the search {config.name}: trial {best['number']}, {config.objective} {best['value']:.6g}.\n"
        if config.sampler == "pbt":
            words += "# Its values changed on the way (search.json, lineage): these are the last.\n"
        given = override(base, [f"{key}={json.dumps(value)}" for key, value in best["params"].items()])
        given["output"] = str(folder / "best")
        Folder(folder / "best.yaml").write((words + as_yaml(given)).encode())
    write_json(Folder(folder / "search.json"), result)
    Folder(folder / "search.html").write(drawn(config, result).encode())
    return result


def ranked(config: SearchConfig, rows: list[dict[str, Any]], number: str = "number") -> list[dict[str, Any]]:
    """Best first, those without a value last; equal ones by their `number`."""
    sign = 1 if config.direction == "minimize" else -1
    return sorted(rows, key=lambda row: (row["value"] is None, sign * (row["value"] or 0.0), row[number]))


def as_yaml(value: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump(json.loads(json.dumps(value)), text)
    return text.getvalue()


def drawn(config: SearchConfig, result: dict[str, Any]) -> str:
    """The objective against each parameter, and a row for each trial."""
    charts, best = [], result["best"] or {}
    for key, parameter in config.space.items():
        names = [json.dumps(choice) for choice in parameter.choices or []]
        dots = []
        for row in result["trials"]:
            if key in row["params"]:
                value = row["params"][key]
                kind = "best" if row["number"] == best.get("number") else "dot"
                kind = "pruned" if row["value"] is None else kind
                x = names.index(json.dumps(value)) if names else value
                dots.append(Dot(x, row["value"], kind, f"trial {row['number']}: {in_words(row)}"))
        charts.append(scatter(dots, key, config.objective, names, parameter.log))
    if "lineage" in result:
        of = {n: [r for r in result["lineage"] if r["member"] == n] for n in range(config.total)}
        lines = [
            Line(f"member {n}", [(r["step"], r["value"]) for r in rows if r["value"] is not None])
            for n, rows in of.items()
        ]
        charts.append(line_chart(lines, {}, "step", config.objective))
    words = f"{config.sampler}, {len(result['trials'])} trials, {config.objective} to {config.direction}."
    if best:
        words += f" Best: trial {best['number']} with {best['value']:.6g}, {in_full(best['params'])}."
    return page(f"Search {config.name}", words, charts, rows_of(config, result["trials"]))


def tables(config: SearchConfig, result: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """(title, rows) for the terminal, within 80 columns: the 20 best trials."""
    best = result["best"]
    ended = f"best is trial {best['number']}" if best else "no trial ended well"
    rows = [row[:3] for row in rows_of(config, ranked(config, result["trials"])[:20])]
    width = 70 - sum(max(len(row[i]) for row in rows) for i in (1, 2))
    for row in rows:
        row[0] = row[0] if len(row[0]) <= width else row[0][: width - 3] + "..."
    return [(f"{config.name}: {ended}", rows)]


def rows_of(config: SearchConfig, trials: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The heading, and a row for each trial."""
    rows = [["trial", config.objective, "ended", "because"]]
    for row in trials:
        value = "" if row["value"] is None else f"{row['value']:.4f}"
        rows.append([f"{row['number']}: {in_full(row['params'])}", value, row["state"], row["reason"]])
    return rows


def in_words(row: dict[str, Any]) -> str:
    """The outcome of a trial in a few words."""
    return f"{row['value']:.4f}" if row["value"] is not None else f"{row['state']}: {row['reason']}"


def in_full(params: dict[str, Any]) -> str:
    """`optimizer.lr=0.003 model.dim=64`, with numbers to four digits."""
    return " ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={json.dumps(value)}"
        for key, value in params.items()
    )
