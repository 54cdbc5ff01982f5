"""Attention within documents: one function, `attend`, and the kernel that computes it on this device.

- CPU: `scaled_dot_product_attention` under a mask, the reference that every other path is tested against; scores that are
  capped, and sinks, in blocks of queries (`corpusmill.train.model.blockwise`).
- CUDA in bf16 or fp16: the variable-length kernel of flash attention, given where documents begin (`cu_seqlens`).
- CUDA otherwise: FlexAttention under a block mask of the documents.

Rows of one document each need none of it: attention, causal or not, by the fastest kernel there is. Local layers (`window`) have boundaries of
their own beside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from corpusmill.train.model.blockwise import Scores, blockwise, capped

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.split import Context

FLASH = (8, 0)  # the lowest compute capability with flash attention
PLAIN: Final = Scores()


class Earlier(Protocol):
    """Keys and values of earlier positions, of all layers, or what they are made of."""

    def extend(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Keep a layer's `new`, such as k and v, [B, K, T, D] each, of new positions; all of them so far, [B, K, S, D]."""


class Boundaries(NamedTuple):
    """The documents' boundaries, computed once for all layers; at most one of the first three is set, none if each row is
    one document. `cu_seqlens`: of concatenated rows, possibly followed by documents of length zero."""

    mask: Tensor | None = None  # bool [B or 1, 1, T, S]
    cu_seqlens: Tensor | None = None  # int32 [documents + 1]
    blocks: Any = None  # FlexAttention's BlockMask
    options: tuple[str, ...] = ()  # with `cu_seqlens`: the names of the kernel's arguments
    seen: list[tuple[Tensor, Tensor]] | None = None  # with `mask`: each layer appends its `attention_figures`
    cache: Earlier | None = None  # `mask` covers its positions too
    causal: bool = True  # without a mask: whether a position attends to earlier ones alone
    positions: Tensor | None = None  # within documents, [B or 1, T], where layers have virtual tokens
    window: int | None = None  # with `cu_seqlens` or a ring: positions that each attends to
    context: Context | None = None  # keys and values are those of all processes that share the sequences
    documents: Tensor | None = None  # of whole rows, where keys and values go around in a ring
    local: Boundaries | None = None  # of layers with a window; None: no layer has one

    def of(self, local: bool) -> Boundaries:
        """Those of a layer."""
        return self.local if local and self.local is not None else self


class Part(NamedTuple):
    """The positions of rows of `length` that this process has of those that share them: `places`, int64 [T / n]."""

    context: Context
    places: Tensor
    length: int


def boundaries(
    ids: Tensor,
    documents: Tensor | None,
    cu_seqlens: Tensor | None,
    dtype: torch.dtype,
    config: ModelConfig,
    part: Part | None = None,
) -> Boundaries:
    """For `documents` [B, T] (None: each row of `ids` [B, T] is one), with queries of `dtype`. Picks the kernel."""
    given = ids, documents, cu_seqlens, dtype, config, part
    found, window = _boundaries(*given, None), config.window
    if window is None:
        return found
    if window >= (ids.shape[1] if part is None else part.length):
        return found._replace(local=found)
    return found._replace(local=_boundaries(*given, window))


def _boundaries(
    ids: Tensor,
    documents: Tensor | None,
    cu_seqlens: Tensor | None,
    dtype: torch.dtype,
    config: ModelConfig,
    part: Part | None,
    window: int | None,
) -> Boundaries:
    context, causal = None if part is None else part.context, config.causal
    if context is not None and context.ring is not None:
        return Boundaries(context=context, documents=documents, window=window, causal=causal)
    plain, head_dim = not (config.attention_softcap or config.attention_sinks), config.head_size
    simple = plain or (causal and ids.device.type != "cuda")
    if documents is None and window is None and part is None and simple:
        return Boundaries(causal=causal)
    if ids.device.type != "cuda" or head_dim < 16:  # smaller than FlexAttention's tiles
        return Boundaries(mask=visible_mask(ids, documents, window, part, causal), context=context)
    flash = torch.cuda.get_device_capability() >= FLASH and head_dim % 8 == 0 and head_dim <= 256
    if (
        plain
        and part is None
        and cu_seqlens is not None
        and flash
        and dtype in (torch.bfloat16, torch.float16)
    ):
        options = _varlen_options()
        if options and (window is None or "window_size" in options):
            from torch._dynamo import maybe_mark_dynamic  # late: a second, and nothing but CUDA needs it

            # Else the first layer is compiled for the first number of documents, and again for the next.
            maybe_mark_dynamic(cu_seqlens, 0)
            return Boundaries(cu_seqlens=cu_seqlens, options=options, window=window, causal=causal)
    return Boundaries(blocks=block_mask(ids, documents, window, part, causal), context=context)


def attend(q: Tensor, k: Tensor, v: Tensor, within: Boundaries, scores: Scores = PLAIN) -> Tensor:
    """Attention of q [B, H, T, D] on k and v [B, K, T, D], H a multiple of K; [B, H, T, D]. `within`: of this layer."""
    if within.context is not None:
        if within.context.ring is not None:
            return within.context.ring.attend(q, k, v, scores, within.documents, within.window, within.causal)
        k, v = within.context.whole(k, v)
    # A branch, not a comparison: the compiler may take numbers of heads for symbols, and the kernels want a bool.
    grouped = True if q.shape[1] != k.shape[1] else False  # noqa: SIM210
    if within.seen is not None and within.mask is not None:
        within.seen.append(attention_figures(q, k, within.mask, scores))
    if within.cu_seqlens is not None:
        return _variable_length(q, k, v, within.cu_seqlens, within)
    if within.blocks is not None:
        return _by_blocks(q, k, v, within.blocks, grouped, scores)
    if not scores.plain:
        return blockwise(q, k, v, within.mask, scores)
    # On CPU, a mask is as fast as is_causal (measured). The last of cached positions sees all of them.
    causal = within.causal and within.mask is None and q.shape[2] == k.shape[2]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=within.mask, is_causal=causal, enable_gqa=grouped
    )


def attention_figures(q: Tensor, k: Tensor, mask: Tensor, scores: Scores = PLAIN) -> tuple[Tensor, Tensor]:
    """Of each position's attention, over this process's heads: its entropy in nats, their mean, whose collapse precedes
    divergence (Zhai et al. 2023); and its highest score, q k / sqrt(D), before it is capped. Both float32 [B, T]. For few positions,
    since all H x T x T weights exist at once."""
    with torch.autocast(q.device.type, enabled=False):
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        raw = q.float() @ k.float().transpose(-2, -1) * q.shape[-1] ** -0.5
    raw = raw.masked_fill(~mask, float("-inf"))
    found = capped(raw, scores.softcap).masked_fill(~mask, float("-inf"))
    if scores.sinks is not None:
        sinks = scores.sinks.float()[:, None, None].expand(*found.shape[:3], 1)
        found = torch.cat((found, sinks), dim=-1)
    entropy: Tensor = torch.special.entr(found.softmax(-1))
    return entropy.sum(-1).mean(1), raw.amax((1, 3))


def visible_mask(
    ids: Tensor, documents: Tensor | None, window: int | None, part: Part | None = None, causal: bool = True
) -> Tensor:
    """bool [B or 1, 1, T, S]: position i sees j if j <= i or not `causal`, both belong to one document (None: each row of `ids` [B, T] is
    one), and with a window |i - j| is less than that. The S keys are those of whole rows, the T queries the same or a `part`."""
    length = ids.shape[1] if part is None else part.length
    keys = torch.arange(length, device=ids.device)
    queries = keys if part is None else part.places
    behind = queries[:, None] - keys
    mask = behind >= 0 if causal else torch.ones_like(behind, dtype=torch.bool)
    if window is not None:
        mask &= behind.abs() < window
    if documents is None:
        return mask[None, None]
    return (mask & (documents[:, queries, None] == documents[:, None, :]))[:, None]


def document_mask(documents: Tensor, ancestors: Tensor | None = None) -> Tensor:
    """bool [B, 1, T, T]: position i sees j if j <= i and both belong to one document; with `ancestors`, bool [B, S, S], if
    the document of i sees that of j."""
    B, T = documents.shape
    if ancestors is None:
        same = documents[:, :, None] == documents[:, None, :]
    else:
        pairs = documents[:, :, None] * ancestors.shape[1] + documents[:, None, :]
        same = ancestors.flatten(1).gather(1, pairs.flatten(1)).view(B, T, T)
    return (same & torch.ones(T, T, dtype=torch.bool, device=documents.device).tril())[:, None]


def block_mask(
    ids: Tensor, documents: Tensor | None, window: int | None, part: Part | None = None, causal: bool = True
) -> Any:
    """`visible_mask` for FlexAttention (Dong et al. 2024): it skips blocks of 128 x 128 that hold nothing."""
    from torch.nn.attention.flex_attention import create_block_mask

    # Eager, it would make the whole T x T mask.
    make = _compiled(create_block_mask) if ids.is_cuda else create_block_mask
    places = None if part is None else part.places

    def visible(row: Tensor, _head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = i if places is None else places[i]
        seen = i >= j if causal else i == i
        if window is not None:
            seen = seen & (i - j < window) & (j - i < window)
        return seen if documents is None else seen & (documents[row, i] == documents[row, j])

    rows, length = (None if documents is None else len(documents)), ids.shape[1]
    return make(visible, rows, None, length, length if part is None else part.length, device=str(ids.device))


def _by_blocks(q: Tensor, k: Tensor, v: Tensor, blocks: Any, grouped: bool, scores: Scores) -> Tensor:
    """FlexAttention; sinks take their share afterwards, from the logarithm of the softmax's denominator."""
    if scores.plain:
        found: Tensor = _flex()(q, k, v, block_mask=blocks, enable_gqa=grouped)
        return found
    softcap = scores.softcap

    def change(score: Tensor, _row: Tensor, _head: Tensor, _i: Tensor, _j: Tensor) -> Tensor:
        return capped(score, softcap)

    from torch.nn.attention.flex_attention import AuxRequest

    made: tuple[Tensor, Any] = _flex()(
        q, k, v, change, block_mask=blocks, enable_gqa=grouped, return_aux=AuxRequest(lse=True)
    )
    out, aux = made
    if scores.sinks is None:
        return out
    share = torch.sigmoid(aux.lse - scores.sinks.float()[:, None])
    return (out * share[..., None]).to(out.dtype)


def sequence_starts(documents: Tensor) -> Tensor:
    """`cu_seqlens` of `documents` [B, T] on the CPU, padded to a power of 2 with empty documents, so that compiled code
    sees few lengths of it. On CUDA this would wait for the device: compute it before the batch is copied there."""
    B, T = documents.shape
    new = torch.ones(B, T, dtype=torch.bool)
    new[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = new.flatten().nonzero().flatten()
    capacity = 1 << len(starts).bit_length()  # at least one more than there are documents
    return torch.cat((starts, starts.new_full((capacity - len(starts),), B * T))).to(torch.int32)


def _variable_length(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, within: Boundaries) -> Tensor:
    """Rows laid end to end; no document is longer than a row, so T bounds them all without asking the device."""
    from torch.nn.attention.varlen import varlen_attn

    B, H, T, D = q.shape
    options = within.options
    before = -1 if within.window is None else within.window - 1
    after = 0 if within.causal else before
    sides: dict[str, Any] = (
        {"window_size": (before, after)} if "window_size" in options else {"is_causal": within.causal}
    )
    if "enable_gqa" in options:
        sides["enable_gqa"] = True if k.shape[1] != H else False  # noqa: SIM210 (see `attend`)
    else:
        k, v = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (k, v))
    flat = [x.transpose(1, 2).reshape(B * T, x.shape[1], D) for x in (q, k, v)]
    found: Any = varlen_attn(flat[0], flat[1], flat[2], cu_seqlens, cu_seqlens, T, T, **sides)
    rows: Tensor = found.view(B, T, H, D)
    return rows.transpose(1, 2)


@lru_cache(maxsize=1)
def _varlen_options() -> tuple[str, ...]:
    """Names of the kernel's arguments, which differ between PyTorch 2.11 and 2.13; none where there is no kernel. (Its
    import takes a second.)"""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return ()
    return tuple(inspect.signature(varlen_attn).parameters)


def _flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    # Eager, it would make the whole matrix.
    return flex_attention if torch.compiler.is_compiling() else _compiled(flex_attention)


@lru_cache(maxsize=2)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)
