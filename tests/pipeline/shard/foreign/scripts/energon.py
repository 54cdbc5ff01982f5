"""Megatron-Energon: `energon prepare` on the folder of a split, then its loader over a crude data set; whether the index
that it made is ours, and the samples."""

import sys
from pathlib import Path

import common

common.borrow_torch()
import yaml  # noqa: E402
from megatron.energon import (  # noqa: E402
    Cooker,
    DefaultTaskEncoder,
    Sample,
    WorkerConfig,
    basic_sample_keys,
    edataclass,
    get_loader,
    get_val_dataset,
    stateless,
)
from megatron.energon.cli.main import main as energon  # noqa: E402


@edataclass
class Content(Sample):
    """A sample as the other scripts describe it."""

    content: list


@stateless
def cook(sample: dict) -> Content:
    return Content(**basic_sample_keys(sample), content=common.content_of(sample))


class Encoder(DefaultTaskEncoder):
    """Samples as they are."""

    cookers = (Cooker(cook),)


folder = Path(sys.argv[1])
tars = sorted(folder.glob("*.tar"))
ours = {tar.name: Path(f"{tar}.idx").read_bytes() for tar in tars}
pattern = f"{tars[0].name[:-10]}{{000000..{len(tars) - 1:06d}}}.tar"
arguments = [
    "prepare",
    "--non-interactive",
    "--num-workers",
    "1",
    "--no-progress",
    "--split-parts",
    f"val:{pattern}",
]
energon([*arguments, "--skip-dataset-yaml", str(folder)], standalone_mode=False)
theirs = {tar.name: Path(f"{tar}.idx").read_bytes() for tar in tars}
for name, data in ours.items():
    (folder / f"{name}.idx").write_bytes(data)
described = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
(folder / ".nv-meta/dataset.yaml").write_text(yaml.safe_dump(described))
worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
found = get_val_dataset(str(folder), worker_config=worker, batch_size=None, task_encoder=Encoder())
samples = [one.content for one in get_loader(found)]
common.say([ours == theirs, samples])
