"""`corpusmill compress`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, Set, ends, print_json, print_table, value

if TYPE_CHECKING:
    from corpusmill.schemas.compression import Compression


def compress(
    run: Run,
    out: Annotated[str, typer.Argument(metavar="OUT", help="folder or URL to write the model to")],
    method: Annotated[str, typer.Option(help="int8, int4, gptq, awq, magnitude, wanda, depth or width")],
    group: Annotated[
        int | None, typer.Option(help="int4, gptq, awq: weights that share a scale: 32, 64 or 128 [32]")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="magnitude, wanda: share of each row to prune [0.5]")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="N:M", help="magnitude, wanda: keep N of every M weights instead, as 2:4"),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="depth: how many layers to remove")] = None,
    ffn_dim: Annotated[
        int | None, typer.Option(help="width: neurons of each feed-forward that are left [all]")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="width: heads of each attention that are left [all]")
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="width: channels between the layers that are left [all]")
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Quantise or prune the newest checkpoint; what that changes, and a model to go on from."""
    from corpusmill.common.config import validate
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.compression import CompressionSettings
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.compress.compress import compress as work

    given = {
        "method": method, "group": group, "share": share, "pattern": pattern, "layers": layers,
        "ffn_dim": ffn_dim, "heads": heads, "dim": dim,
    }  # fmt: skip
    settings = validate(CompressionSettings, given, "compress")
    result = work(*open_run(run, set_), Folder(out), settings)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    print_table(_lines(result), f"{result.name}, step {result.step}, {method}: validation split, in float32")
    before, after = result.bytes_before / 1e6, result.bytes_after / 1e6
    typer.echo(f"weights: {before:,.2f} MB in bfloat16, {after:,.2f} MB as this method would store them")
    typer.echo(f"zeros: {result.zeros:.2%} of the weights of the layers' matrices")
    typer.echo(
        f"{result.speed_before:,.0f} tokens/s in a forward pass, {result.speed_after:,.0f} after, both in float32"
    )
    start = "".join(f" --set model.{key}={value}" for key, value in result.model.items())
    if result.removed:
        typer.echo(f"removed: layers {', '.join(map(str, result.removed))}, counted from 0")
    typer.echo(f"{Folder(out)}: in float32; to train on: --set init_from={Folder(out)}{start}")


def _lines(result: Compression) -> list[list[str]]:
    lines = [
        [
            "source",
            "bits a byte",
            "after",
            "change",
            "95 %",
            "KL, nats a token",
            "99 % of tokens",
            "same choice",
        ]
    ]
    for name, row in result.sources.items():
        lines.append(
            [
                name, value(row.before), value(row.after), value(row.difference, "+"), ends(row.difference),
                f"{row.divergence.value:.5f}", f"{row.divergence_p99:.5f}", f"{row.agreement.value:.2%}",
            ]
        )  # fmt: skip
    if len(result.sources) > 1:
        mean = result.difference
        lines.append(["mean of sources", "", "", value(mean, "+"), ends(mean), "", "", ""])
    return lines
