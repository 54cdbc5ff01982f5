"""The dashboard: a run as one HTML file with its own style and script, which loads nothing else; written once, repeatedly
until the run is done, or by the run itself (`log.dashboard`)."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.common.charts import thin
from corpusmill.common.format import time_left
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.guard.attention import ADVICE, collapses, message
from corpusmill.train.log.plots import History, groups, read_journal
from corpusmill.train.model.flops import MFU_FORMULA
from corpusmill.train.run_folder import PLAN, RESULT, dumped

if TYPE_CHECKING:
    from jinja2 import Template

ASSETS = Path(__file__).parent / "assets"
EVENTS = 500  # entries of the journal on the page, the latest ones
SHORT = 48  # characters of a value that the table shows unfolded
LETTERS = 20_000  # characters of one message of the guard, such as the documents of a batch


def render(run: Folder, config: TrainConfig, history: History, live: float = 0) -> str:
    """The page of a run by the present content of its folder; `live`: seconds after which it reloads itself (0: never)."""
    facts = gather(run, config, history, live)
    steps, tokens = thin(*history.column("tokens"), 400)
    data = {
        "groups": [{"title": g["title"], "plots": g["plots"]} for g in facts["groups"]],
        "tokens": {"x": np.diff(steps, prepend=0).tolist(), "y": tokens.tolist()},
        "events": [{key: event[key] for key in ("step", "kind", "words")} for event in facts["events"]],
        "live": live,
    }
    return _template().render(f=facts, data=script_json(data), **_assets())


def script_json(value: Any) -> Any:
    """JSON that is safe in a script element: it can neither end the element nor begin a comment."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return jinja.from_string((ASSETS / "page.html.j2").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _assets() -> dict[str, Any]:
    """Style and script, and the hash by which the page's content security policy allows this script alone."""
    from markupsafe import Markup

    script = (ASSETS / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    return {"style": Markup(style), "script": Markup(script), "script_hash": Markup(digest)}


def gather(run: Folder, config: TrainConfig, history: History, live: float) -> dict[str, Any]:
    """What the template shows."""
    plan, result = _read_json(run / PLAN), _read_json(run / RESULT)
    last, steps = history.last, config.schedule.steps
    step = int(last.get("step", 0))
    events = [_event(entry) for entry in _with_warnings(read_journal(run), history, config)]
    return {
        "name": config.name,
        "place": run.url,
        "live": live,
        "written": int(time.time()) if live else 0,
        "state": _state(config, last, finished(run, config)),
        "percent": round(100 * min(step / steps, 1), 1),
        "tiles": _tiles(last, result, len(events)),
        "groups": groups(history, config),
        "events": events[-EVENTS:],
        "events_left_out": max(len(events) - EVENTS, 0),
        "stages": [f"{int(first):,}" for first in plan.get("stages", {})],
        "sources": _sources(plan, last, history),
        "plan": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest() if plan else "not made yet",
        "mfu_formula": MFU_FORMULA,
        "config": json.dumps(dumped(config), indent=1, ensure_ascii=False),
    }  # fmt: skip


def finished(run: Folder, config: TrainConfig) -> bool:
    """Whether the run has come to the last step of this config."""
    return int(_read_json(run / RESULT).get("steps", 0)) >= config.schedule.steps


def _read_json(file: Folder) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read()))
    except FileNotFoundError:
        return {}


def _state(config: TrainConfig, last: dict[str, Any], done: bool) -> str:
    steps, step = config.schedule.steps, int(last.get("step", 0))
    if done:
        return f"Done: {steps:,} steps, {config.data.tokens(steps):,} tokens."
    line = (
        f"Step {step:,} of {steps:,}; {config.data.tokens(step):,} of {config.data.tokens(steps):,} tokens."
    )
    if last.get("tokens_per_second"):
        left = (config.data.tokens(steps) - config.data.tokens(step)) / last["tokens_per_second"]
        line += f" At the last rate {time_left(left)} to go."
    return line


def _tiles(last: dict[str, Any], result: dict[str, Any], events: int) -> list[tuple[str, str]]:
    validation = (last.get("validation") or result.get("validation") or {}).values()
    found = [
        (last.get("loss"), "{:.4f}", "loss, nats a token"),
        (sum(validation) / len(validation) if validation else None, "{:.4f}", "validation, mean of the sources"),
        (last.get("lr"), "{:.3g}", "learning rate"),
        (last.get("tokens_per_second"), "{:,.0f}", "tokens/s"),
        (last.get("mfu"), "{:.1%}", "MFU"),
        (last.get("memory_mib"), "{:,.0f}", "MiB at most in a process"),
        (last.get("energy_kwh"), "{:,.4g}", "kWh"),
        (last.get("carbon_kg"), "{:,.4g}", "kg CO2e"),
        (result.get("parameters"), "{:,}", "parameters"),
        (events, "{:,}", "events of the guard"),
    ]  # fmt: skip
    return [(form.format(value), name) for value, form, name in found if value is not None]


def _event(entry: dict[str, Any]) -> dict[str, Any]:
    """A row of the table, and the `words` beside a mark in a plot; long values (`more`) are folded."""
    known = ("v", "entry", "step", "kind", "why", "note", "to_step", "lr_factor")
    why = "; ".join(filter(None, (_reasons(entry.get("why")), _one_line(entry.get("note")))))
    short, more = list[tuple[str, str]](), list[tuple[str, str]]()
    for name, value in entry.items():
        if name not in known and value not in (None, [], {}, ""):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if len(text) >= SHORT and not isinstance(value, str):
                text = json.dumps(value, indent=1, ensure_ascii=False)
            cut = f"{text[:LETTERS]}\n… {len(text) - LETTERS:,} letters more" if len(text) > LETTERS else text
            (short if len(text) < SHORT and "\n" not in text else more).append((name.replace("_", " "), cut))
    back = entry.get("to_step")
    words = f"step {entry['step']:,}: {entry['kind']}" + (f" to step {back}" if back is not None else "")
    return {
        "step": entry["step"], "kind": entry["kind"], "why": why, "short": short, "more": more,
        "to_step": "" if back is None else back,
        "lr_factor": "" if entry.get("lr_factor") is None else entry["lr_factor"],
        "words": f"{words}, {why}" if why else words,
    }  # fmt: skip


def _with_warnings(
    entries: list[dict[str, Any]], history: History, config: TrainConfig
) -> list[dict[str, Any]]:
    """The journal's entries, and in their places the warnings of collapsing layers, by the rows of the run: one for a step."""
    if not config.guard.enabled:
        return entries
    columns = {name: history.column(name) for name in history.names if "/layer_" in name}
    for step, found in groupby(collapses(columns, config.guard.collapse), key=lambda one: one.step):
        warning = {"step": step, "kind": "warning", "why": message(list(found)), "note": ADVICE}
        place = max((at for at, entry in enumerate(entries, 1) if entry["step"] <= step), default=0)
        entries = [*entries[:place], warning, *entries[place:]]
    return entries


def _reasons(why: Any) -> str:
    """The guard's reasons, [{signal, value, limit}], or whatever else is given, as words."""
    if not isinstance(why, list):
        return _one_line(why)
    return ", ".join(
        "{} {} (limit {})".format(*(_figure(one.get(key)) for key in ("signal", "value", "limit")))
        if isinstance(one, dict) else _one_line(one)
        for one in why
    )  # fmt: skip


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _one_line(value)


def _one_line(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split())


def _sources(plan: dict[str, Any], last: dict[str, Any], history: History) -> list[dict[str, Any]]:
    found = []
    for name, source in plan.get("sources", {}).items():
        stages = plan["stages"].values()
        shares = [stage["slots"].get(name, 0) / sum(stage["slots"].values()) for stage in stages]
        loss, validation = (history.column(f"{kind}/{name}")[1] for kind in ("loss_per_source", "validation"))
        found.append(
            {
                "name": name,
                "tokens": f"{source['tokens']:,}",
                "shares": [f"{share:.1%}" for share in shares],
                "loss": f"{loss[-1]:.4f}" if len(loss) else "–",
                "validation": f"{validation[-1]:.4f}" if len(validation) else "–",
            }
        )
    return found


PAGE = "dashboard.html"
SECONDS = 30.0  # between two pages, at least
SHARE = 0.005  # of the run's time that writing pages may take


def write(
    config: TrainConfig, run: Folder, out: str | None = None, live: float = 0, history: History | None = None
) -> dict[str, Any]:
    """Publish the page atomically at `out` (default: dashboard.html in the run's folder); returns its URL, step, rows and
    bytes. `history`: what was read of the run before."""
    file = Folder(out) if out else run / PAGE
    history = (history or History()).read(run)
    page = render(run, config, history, live).encode()
    file.write(page)
    rows = max((len(history.column(name)[0]) for name in history.names), default=0)
    return {"page": file.url, "step": int(history.last.get("step", 0)), "rows": rows, "bytes": len(page)}


def write_until_done(config: TrainConfig, run: Folder, out: str | None, seconds: float) -> dict[str, Any]:
    """Write the page every `seconds`, and a last time, without reloading, when the run has ended or on an interrupt. Writing
    takes at most a tenth of the time."""
    history = History()
    try:
        while not finished(run, config):
            began = time.monotonic()
            result = write(config, run, out, seconds, history)
            print(f"{result['page']}: step {result['step']:,}", file=sys.stderr, flush=True)
            time.sleep(max(seconds, 9 * (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    return write(config, run, out, 0, history)


class Live:
    """A sink that keeps columns of all rows, and writes the page at a row, at most every `SECONDS`, and so that writing takes
    at most `SHARE` of the time. The last page is written at the end."""

    def __init__(self, run: Folder, config: TrainConfig, rows: list[dict[str, Any]]) -> None:
        self.run, self.config, self.history = run, config, History()
        for row in rows:
            self.history.add(row)
        self._next = 0.0

    def write(self, row: dict[str, Any]) -> None:
        self.history.add(row)
        if time.monotonic() >= self._next:
            self._publish(SECONDS)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._publish(0)

    def _publish(self, live: float) -> None:
        began = time.monotonic()
        (self.run / PAGE).write(render(self.run, self.config, self.history, live).encode())
        now = time.monotonic()
        self._next = now + max(SECONDS, (now - began) / SHARE)
