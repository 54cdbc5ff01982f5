"""NF4 beside bitsandbytes: codes of the same weights, and how far the values that they stand for are from these."""

from __future__ import annotations

SHAPES = ((1024, 1024), (256, 4096))


def beside() -> list[dict[str, float]]:
    """Of each shape, for standard normal weights: the share of bytes of codes that are equal, and mean errors: of ours, of bitsandbytes' with
    scales in 8 bits, and of its with scales in 32."""
    import bitsandbytes.functional as theirs
    import torch

    from corpusmill.train.model.nf4 import dequantise, quantise

    torch.manual_seed(0)
    found = []
    for shape in SHAPES:
        weight = torch.randn(shape)
        mine = quantise(weight)
        errors = {"ours": (dequantise(*mine) - weight).abs().mean().item()}
        for name, double in (("double", True), ("plain", False)):
            codes, state = theirs.quantize_4bit(
                weight, blocksize=64, quant_type="nf4", compress_statistics=double
            )
            errors[name] = (theirs.dequantize_4bit(codes, state) - weight).abs().mean().item()
            errors["equal"] = (codes.flatten() == mine.codes.flatten()).float().mean().item()
        found.append(errors)
    return found
