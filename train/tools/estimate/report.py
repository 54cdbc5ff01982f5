"""The estimate of a training config: as one dict, and as tables for people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.format import duration
from corpusmill.schemas.parallel import Checkpointing
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from corpusmill.train.model.flops import Gpu, flops_per_token, gpu_named, recomputed_per_token
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import WIDTH, Found, Memory, Work, fits, memory, sent, smallest
from corpusmill.train.tools.estimate.speed import Option, Timing, fastest

GIB = 2**30
SHOWN = 4  # other layouts that fit, in the table


@dataclass(frozen=True)
class Terms:
    """What it is computed on and for how much; see `corpusmill estimate --help`."""

    gpu: str = "H200"
    count: int = 1
    mfu: float = 0.4
    price: float | None = None
    carbon: float | None = None
    pue: float = 1.1
    headroom: float = 0.08
    vocab: int | None = None
    precision: str | None = None
    checkpointing: Checkpointing | None = None
    budget: float | None = None
    network: float | None = None  # GB/s that a GPU sends to other nodes


class Bill(NamedTuple):
    """Of a whole run. Cost and CO2e are None where no price or carbon intensity is given."""

    seconds: float
    gpu_hours: float
    kwh: float
    usd: float | None
    kg_co2e: float | None


def bill(
    flops: float, gpu: Gpu, count: int, mfu: float, *, price: float | None = None, carbon: float | None = None,
    pue: float = 1.1,
) -> Bill:  # fmt: skip
    """`flops` of the model on `count` GPUs at a share `mfu` of their peak; `price` in USD per GPU hour, `carbon` in kg CO2e a
    kWh. Energy = GPU hours x TDP x PUE (Patterson et al. 2021), so hosts' CPUs and networks are in the PUE or not at all.
    """
    seconds = flops / (count * gpu.peak * mfu)
    hours = seconds / 3600 * count
    kwh = hours * gpu.watts / 1000 * pue
    return Bill(
        seconds,
        hours,
        kwh,
        None if price is None else hours * price,
        None if carbon is None else kwh * carbon,
    )


def estimate(config: TrainConfig, layout: Layout, terms: Terms, asked: bool = True) -> dict[str, Any]:
    """Memory, FLOPs and the bill of a run in a layout; its dp follows from `terms.count`. And other layouts: the smallest that
    fits, the fastest of so many GPUs.

    If the GPUs, the model or the batch cannot be divided so, raises `UserError` where this layout is `asked` for; else there is
    no memory in the answer, and `refused` says why.
    """
    if config.adapter is not None:
        raise UserError(
            "adapter: the estimate knows what the training of all weights needs, which is more: --set adapter=null shows that"
        )
    gpu, precision = gpu_named(terms.gpu), terms.precision or config.precision.replace("auto", "bf16")
    if precision not in WIDTH:
        raise UserError(f"--precision: '{precision}' is not allowed (allowed: {', '.join(WIDTH)})")
    if not 0 < terms.mfu <= 1:
        raise UserError(f"--mfu: must be above 0 and at most 1, is {terms.mfu:g}")
    shape = shape_of(config.model, terms.vocab or open_shards(config.data.shards).set.vocab_size)
    data = config.data
    checkpointing = terms.checkpointing or config.memory.checkpointing
    budget = terms.budget
    if budget is None and checkpointing == "budget":
        budget = config.memory.budget
    if (checkpointing == "budget") != (budget is not None):
        raise UserError(
            f"--budget: goes with --checkpointing budget alone (it is {checkpointing}): give both, or neither"
        )
    work = Work(
        data.micro_batch, data.sequence_length, data.global_batch, config.optimizer, precision, checkpointing,
        budget, compiled=config.compile is not False, outer=config.outer,
    )  # fmt: skip
    model, refused = layout.cp * layout.tp * layout.pp, None
    if terms.count % model:
        refused = (
            f"--count: {terms.count} GPUs are not a multiple of {f'cp {layout.cp} x ' if layout.cp > 1 else ''}tp {layout.tp} x pp"
            f" {layout.pp}: set it to"
            f" {-(-terms.count // model) * model}"
        )
    else:
        layout = replace(layout, dp=terms.count // model)
        why = layout.refusal(shape, work.length, work.global_batch, work.micro_batch)
        refused = f"layout {layout}: {why}" if why else None
    if refused and asked:
        raise UserError(refused)
    need = None if refused else memory(shape, layout, work)
    timing = Timing(shape, work, gpu, terms.mfu, terms.network and terms.network * 1e9)
    tokens = data.tokens(config.schedule.steps)
    flops = flops_per_token(
        shape.sizes, data.sequence_length, shape.top_k, shape.causal, windows=shape.windows
    )
    again = 0.0  # `selective` keeps what products put out: next to nothing is; of a `budget` it is not known
    if checkpointing == "full":
        again = recomputed_per_token(
            shape.sizes, data.sequence_length, shape.top_k, shape.causal, shape.windows
        )
    found = smallest(shape, work, gpu, layout, terms.headroom)
    return {
        "name": config.name,
        "parameters": shape.parameters,
        "precision": precision,
        "checkpointing": checkpointing,
        "optimizer": config.optimizer.kind,
        "micro_batch": data.micro_batch,
        "sequence_length": data.sequence_length,
        "gpu": gpu._asdict(),
        "count": terms.count,
        "layout": layout.as_json(),
        "layout_name": str(layout),
        "refused": refused,
        "memory": need and _bytes(need),
        "fits": need is not None and fits(need, gpu, terms.headroom),
        "headroom": terms.headroom,
        "sent_bytes_per_step": round(sent(shape, layout, work)) if need else None,
        "seconds_per_step": timing.step(layout, work.micro_batch).total if need else None,
        "tokens": tokens,
        "flops_per_token": flops,
        "flops_per_token_recomputed": again,
        "flops": flops * tokens,
        "mfu": terms.mfu,
        **bill(
            flops * tokens, gpu, terms.count, terms.mfu, price=terms.price, carbon=terms.carbon, pue=terms.pue
        )._asdict(),
        "smallest": _found(found.best) if found.best else None,
        "too_small": [_found(option) for option in found.nearest],
        "others": [_found(option) for option in found.others],
        "global_batch": work.global_batch,
        "fastest": [
            _option(option, timing) for option in fastest(timing, layout, terms.headroom, terms.count)
        ],
    }  # fmt: skip


def _bytes(need: Memory) -> dict[str, int]:
    return {**{name: round(size) for name, size in need._asdict().items()}, "total": round(need.total)}


def _found(found: Found) -> dict[str, Any]:
    return {
        "gpus": found.layout.processes, "layout": str(found.layout), **found.layout.as_json(),
        "memory": _bytes(found.memory), "sent_bytes_per_step": round(found.sent),
    }  # fmt: skip


def _option(option: Option, timing: Timing) -> dict[str, Any]:
    seconds, layout, work = option.seconds, option.layout, timing.work
    done = timing.flops * work.global_batch * work.length
    return {
        "gpus": layout.processes, "layout": str(layout), **layout.as_json(), "micro_batch": option.micro_batch,
        "memory": _bytes(option.memory), "seconds_per_step": seconds.total, "seconds": seconds._asdict(),
        "tokens_per_second": work.global_batch * work.length / seconds.total,
        "mfu": done / (seconds.total * layout.processes * timing.gpu.peak),
    }  # fmt: skip


def tables(result: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """(title, lines) of each table: memory, the run, the layouts."""
    gpu, sizes = result["gpu"], result["memory"] or {}
    available = gpu["memory"] * (1 - result["headroom"])
    need = [["part", "GiB", "share"]] + [
        [name, f"{size / GIB:,.2f}", f"{size / max(sizes['total'], 1):.0%}"] for name, size in sizes.items()
    ]
    verdict = "fits" if result["fits"] else "does not fit"
    title = (
        f"{result['name']}: {result['parameters']:,} parameters, {result['precision']}, {result['optimizer']}, checkpointing"
        f" {result['checkpointing']}, {result['micro_batch']} x {result['sequence_length']} tokens a pass; "
    )
    title += result["refused"] or (
        f"{result['layout_name']}: {verdict} into {available:.1f} of {gpu['memory']:g} GiB"
    )
    run = [
        ["the run", ""],
        ["tokens", f"{result['tokens']:,}"],
        ["FLOPs per token", f"{result['flops_per_token']:.3e}"],
        ["computed again per token", f"{result['flops_per_token_recomputed']:.3e}"],
        ["FLOPs", f"{result['flops']:.3e}"],
        ["time", duration(result["seconds"])],
        ["GPU hours", f"{result['gpu_hours']:,.2f}"],
        ["energy, kWh", f"{result['kwh']:,.2f}"],
    ]
    run += [] if result["usd"] is None else [["cost, USD", f"{result['usd']:,.2f}"]]
    run += [] if result["kg_co2e"] is None else [["CO2e, kg", f"{result['kg_co2e']:,.2f}"]]
    layouts = [["layout", "GPUs", "GiB", "sent a step, MB", ""]]
    best, others = result["smallest"], result["others"]
    notes = [
        (option, f"too large by {option['memory']['total'] / GIB - available:,.1f} GiB")
        for option in result["too_small"]
    ]
    notes += [(best, "the smallest that fits")] if best else []
    notes += [(option, "fits, sends more") for option in others[:SHOWN]]
    for option, note in notes:
        layouts.append(
            [
                option["layout"], str(option["gpus"]), f"{option['memory']['total'] / GIB:,.1f}",
                f"{option['sent_bytes_per_step'] / 1e6:,.0f}", note,
            ]
        )  # fmt: skip
    more = f"; {len(others) - SHOWN} more fit" if len(others) > SHOWN else ""
    last = (
        "the smallest layout that fits" if best else "no layout fits: less micro_batch, or checkpointing full"
    )
    return [
        (title, need),
        (
            f"{result['count']} x {gpu['name']} at {result['mfu']:.0%} of {gpu['peak'] / 1e12:,.0f} TFLOP/s",
            run,
        ),
        (last + more, layouts),
        _fastest(result),
    ]


def _fastest(result: dict[str, Any]) -> tuple[str, list[list[str]]]:
    lines = [["layout", "micro-batch", "GPUs", "GiB", "s a step", "MFU", "waits most for"]]
    for option in result["fastest"]:
        waits = {name: value for name, value in option["seconds"].items() if name != "compute" and value}
        lines.append(
            [
                option["layout"], str(option["micro_batch"]), f"{option['gpus']:,}",
                f"{option['memory']['total'] / GIB:,.1f}", f"{option['seconds_per_step']:.3g}", f"{option['mfu']:.1%}",
                max(waits, key=lambda name: waits[name]) if waits else "",
            ]
        )  # fmt: skip
    count, best = result["count"], result["fastest"][0] if result["fastest"] else None
    title = f"the fastest layouts of {count:,} x {result['gpu']['name']}"
    if best is None:
        title = f"no layout of {count:,} x {result['gpu']['name']} fits: take more, or checkpointing full"
    elif best["gpus"] < count:
        title += (
            f": {best['gpus']:,} of them, since model and data.global_batch {result['global_batch']:,} cannot be divided among"
            f" more; set data.global_batch to {count:,} for all"
        )
    return title, lines
