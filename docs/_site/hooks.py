"""Pages that MkDocs generates while it builds the site: home, the reference, and files of the repository that pages link to.

The commands come from the command line itself, the keys of recipes and training configs from their pydantic models, the API
from `corpusmill.__all__` and the docstrings (mkdocstrings): nothing of it is written by hand.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page
    from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
LINK = re.compile(r"(\]\()((?!\w+:|#|/)[^)\s#]+)([^)]*\))")
# Until the package exports names of its own, the entry points of the docs.
ENTRY_POINTS = ["corpusmill.train.data.stream.StreamingTokens"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and each file of the repository outside of docs/ that a page links to."""
    pages = {
        "index.md": home(),
        "reference/commands.md": commands(),
        "reference/recipe.md": recipe_keys(),
        "reference/training.md": training_keys(),
        "reference/api.md": api(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for file in list(files.documentation_pages()):
        folder = posixpath.dirname(file.src_uri)
        for _, target, _ in LINK.findall(file.content_string):
            linked = ROOT / posixpath.normpath(posixpath.join("docs", folder, target))
            name = mirrored(linked)
            if name and linked.is_file() and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, content=shown(linked)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files outside of docs/ lead to their copies in the site."""
    folder = posixpath.dirname(page.file.src_uri)
    if folder.startswith("repository"):
        return markdown

    def moved(match: re.Match[str]) -> str:
        name = mirrored(ROOT / posixpath.normpath(posixpath.join("docs", folder, match[2])))
        if name is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(name, folder or '.')}{match[3]}"

    return LINK.sub(moved, markdown)


def mirrored(file: Path) -> str | None:
    """The page of the site that shows a file of the repository; None for the pages of docs/ themselves."""
    name = file.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return None
    return f"repository/{name if name.endswith('.md') else name + '.md'}"


def shown(file: Path) -> str:
    """A file of the repository as a page: Markdown without its links, anything else as code."""
    text = file.read_text(encoding="utf-8")
    name = file.relative_to(ROOT).as_posix()
    if file.suffix == ".md":
        return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    language = {".py": "python", ".yaml": "yaml", ".ipynb": "json"}.get(file.suffix, "text")
    return f"# `{name}`\n\n````{language}\n{text}\n````\n"


def home() -> str:
    """The README, its links and images seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return LINK.sub(lambda m: f"{m[1]}{posixpath.relpath(m[2], 'docs')}{m[3]}", text)


# Commands


def commands() -> str:
    """Every command with its arguments, options and example."""
    import typer.main

    from corpusmill.__main__ import build

    root: Any = typer.main.get_command(build())
    lines = ["# Commands", "", f"{root.help}", ""]
    lines += [
        "Exit codes: 0 done, 1 the work failed or nothing survived, 2 the command or config is wrong.",
        "",
    ]
    for name in sorted(root.commands):
        lines += _command(root.commands[name], f"corpusmill {name}", 2)
    return "\n".join(lines)


def _command(command: click.Command, path: str, level: int) -> list[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    lines = [f"{'#' * level} {path}", "", _paragraphs(command.help), ""]
    if isinstance(subcommands := getattr(command, "commands", None), dict):
        for name in sorted(subcommands):
            lines += _command(subcommands[name], f"{path} {name}", level + 1)
        return lines
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines += ["```text", usage, "```", ""]
    if command.epilog:
        lines += [
            "Example:",
            "",
            "```sh",
            command.epilog.replace("\b\n", "").replace("Example: ", "").strip(),
            "```",
            "",
        ]
    rows = []
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is not None:
            rows.append(f"| `{_cell(record[0])}` | {_text(record[1])} |")
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    for name, other in sorted(getattr(command, "beside", {}).items()):
        lines += _command(other, f"{path} {name}", level + 1)
    return lines


def _paragraphs(text: str | None) -> str:
    return _escape(inspect.cleandoc(text or "").replace("\b\n", ""))


def _text(text: str) -> str:
    return _escape(_cell(text))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escape(text: str) -> str:
    """Plain text as Markdown: nothing of it is markup, outside of `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        p if p.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", p).replace("<", "&lt;") for p in parts
    )


# Keys of configs


def recipe_keys() -> str:
    """Every key of a recipe."""
    from corpusmill.schemas.recipe import Recipe

    return _keys("Recipe keys", Recipe, "corpusmill run RECIPE.yaml --set KEY=VALUE")


def training_keys() -> str:
    """Every key of a training config."""
    from corpusmill.schemas.training import TrainConfig

    return _keys("Training keys", TrainConfig, "corpusmill train CONFIG.yaml --set KEY=VALUE")


def _keys(title: str, model: type[BaseModel], override: str) -> str:
    schema = model.model_json_schema()
    definitions: dict[str, Any] = schema.get("$defs", {})
    lines = [f"# {title}", "", _paragraphs(schema.get("description")), ""]
    lines += [f"Any key can be overridden on the command line: `{override}`. An unknown key is an error.", ""]
    simple, sections = [], []
    for key, value in schema["properties"].items():
        (sections if _models(value, definitions) else simple).append((key, value))
    lines += _table(simple, definitions, schema.get("required", []), "")
    for key, value in sections:
        lines += [f"## {key}", ""]
        for model_schema, prefix in _models(value, definitions):
            lines += [_paragraphs(model_schema.get("description")), ""]
            start = prefix.replace("KEY", key)
            lines += _nested(model_schema, definitions, start)
    return "\n".join(lines)


def _nested(schema: dict[str, Any], definitions: dict[str, Any], prefix: str) -> list[str]:
    rows = list(schema.get("properties", {}).items())
    lines = _table(rows, definitions, schema.get("required", []), prefix)
    for key, value in rows:
        for inner, where in _models(value, definitions):
            if inner is not schema and inner.get("properties"):
                lines += [
                    f"**`{where.replace('KEY', prefix + key)}…`** {_paragraphs(inner.get('description'))}",
                    "",
                ]
                lines += _nested(inner, definitions, where.replace("KEY", prefix + key))
    return lines


def _models(value: dict[str, Any], definitions: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The models that a key's value is made of, each with the start of its keys (KEY stands for the key)."""
    found = []
    if "$ref" in value:
        target = definitions[value["$ref"].rpartition("/")[2]]
        if target.get("properties"):
            found.append((target, "KEY."))
    for part in value.get("anyOf", []) + value.get("oneOf", []):
        found += _models(part, definitions)
    if isinstance(items := value.get("items"), dict):
        found += [(m, w.replace("KEY", "KEY[]")) for m, w in _models(items, definitions)]
    if isinstance(values := value.get("additionalProperties"), dict):
        found += [(m, w.replace("KEY", "KEY.NAME")) for m, w in _models(values, definitions)]
    return found


def _table(
    rows: list[tuple[str, dict[str, Any]]], definitions: dict[str, Any], required: list[str], prefix: str
) -> list[str]:
    if not rows:
        return []
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, value in rows:
        default = "required" if key in required else _default(value)
        kind = _cell(_type(value, definitions))
        lines.append(
            f"| `{prefix}{key}` | {_escape(kind)} | {default} | {_text(value.get('description', ''))} |"
        )
    return [*lines, ""]


def _default(value: dict[str, Any]) -> str:
    import orjson

    if "default" not in value:
        return ""
    text = orjson.dumps(value["default"]).decode()
    return f"`{_cell(text)}`" if len(text) <= 60 else "see the model"


def _type(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in value:
        target = definitions[value["$ref"].rpartition("/")[2]]
        return _type(target, definitions) if not target.get("properties") else "mapping"
    if "enum" in value:
        return ", ".join(f"`{entry}`" for entry in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if parts := value.get("anyOf", []) + value.get("oneOf", []):
        return " or ".join(dict.fromkeys(_type(part, definitions) for part in parts))
    kind = value.get("type", "any")
    if kind == "array":
        items = value.get("items")
        return f"list of {_type(items, definitions)}" if items else "list"
    if kind == "object":
        values = value.get("additionalProperties")
        return f"mapping to {_type(values, definitions)}" if isinstance(values, dict) else "mapping"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    words = [f"{sign} {value[name]:g}" for name, sign in limits.items() if name in value]
    return " ".join([{"number": "number", "null": "null"}.get(kind, kind), *words])


# Python API


def api() -> str:
    """Every public name of the package, by its docstring."""
    package = importlib.import_module("corpusmill")
    lines = ["# Python API", "", _paragraphs(package.__doc__).partition("\n")[0], ""]
    for path in _exported(package) or ENTRY_POINTS:
        lines += [f"::: {path}", ""]
    return "\n".join(lines)


def _exported(package: Any) -> list[str]:
    """Where each name of `__all__` is defined: lazy names are no members that a reader of the source finds."""
    paths = []
    for name in getattr(package, "__all__", []):
        value = getattr(package, name)
        module = getattr(value, "__module__", None)
        if module and hasattr(value, "__qualname__"):
            paths.append(f"{module}.{value.__qualname__}")
    return paths
