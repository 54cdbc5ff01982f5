"""`resources.html` of a run: what its stages were planned to use beside what they did use, from their manifests. It holds
times, so each run has its own, under the checksums of the run's record; the report, which depends on the documents alone, points
to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from corpusmill.common.format import number, size, span
from corpusmill.pipeline.engine.planning.text import summed
from corpusmill.schemas.manifest import Figures, StageResources

FILE = "resources.html"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}: time, memory and disk</title>
<style>
:root { color-scheme: light dark; --paper: #faf9f6; --card: #fff; --ink: #22262b; --line: #e3dfd6; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --card: #1c2024; --ink: #e6e4df; --line: #31373d; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 82rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--paper); }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.total td { font-weight: 600; }
</style>
</head>
<body>
<h1>{{ name }}: time, memory and disk</h1>
<p>Planned before the run, and measured in the processes that did the work. Memory is the peak of a process; written bytes
include intermediate files that are deleted again. Of a stage that an interrupted run had begun, only the last run is counted.</p>
<div class="wide"><table>
<thead>
<tr><th rowspan="2">stage</th>{% for title in titles %}<th colspan="2">{{ title }}</th>{% endfor %}</tr>
<tr>{% for title in titles %}<th>planned</th><th>actual</th>{% endfor %}</tr>
</thead>
<tbody>
{% for row in rows %}
<tr{% if row.total %} class="total"{% endif %}><td>{{ row.name }}</td>{% for cell in row.cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
</body>
</html>
"""


def _whole(count: float) -> str:
    return number(round(count))


_COLUMNS = {
    "time": ("seconds", span), "CPU time": ("cpu_seconds", span), "memory of a worker": ("worker_bytes", size),
    "memory of the driver": ("driver_bytes", size), "written": ("written_bytes", size), "requests": ("requests", _whole),
}  # fmt: skip


class _Row(NamedTuple):
    name: str
    cells: list[str]
    total: bool = False


def render(name: str, stages: Mapping[str, StageResources]) -> bytes:
    """The page of a run of this name; what was not planned is a dash."""
    rows = [_Row(stage, _cells(one.planned, one.actual)) for stage, one in stages.items()]
    planned = [one.planned for one in stages.values() if one.planned is not None]
    whole = summed(planned) if len(planned) == len(stages) else None
    rows.append(_Row("total", _cells(whole, summed([one.actual for one in stages.values()])), total=True))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_PAGE).render(name=name, titles=list(_COLUMNS), rows=rows).encode()


def _cells(planned: Figures | None, actual: Figures) -> list[str]:
    cells = []
    for field, write in _COLUMNS.values():
        for one in (planned, actual):
            cells.append("–" if one is None else write(round(getattr(one, field), 3)))
    return cells
