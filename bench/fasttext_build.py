"""Language identification with the default fastText wheel beside fastText's own source build.

The source build (`fasttext==0.9.3`) compiles with `-march=native` and takes about a minute and a compiler, which
is why it is not the default. It is made here once, in an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".cache/bench/fasttext-source"
MODEL = ROOT / "pipeline/filter/models/lid.176.ftz"
TEXTS = ROOT / "examples/corpus/sources/books"

# Runs in either environment: microseconds per text of about 450 characters, the median of five passes.
PROBE = """
import statistics, sys, time
from pathlib import Path
import fasttext
model = fasttext.load_model(sys.argv[1]).f
text = " ".join(" ".join(f.read_text(encoding="utf-8").split()) for f in sorted(Path(sys.argv[2]).rglob("*.txt")))
texts = [text[i : i + 450] + "\\n" for i in range(0, min(len(text), 900_000), 450)]
passes = []
for _ in range(6):
    start = time.process_time()
    for one in texts:
        model.predict(one, 1, 0.0, "strict")
    passes.append((time.process_time() - start) / len(texts) * 1e6)
print(statistics.median(passes[1:]))
"""


def probe(python: Path | str) -> float:
    """Microseconds of CPU per text."""
    command = [str(python), "-W", "ignore", "-c", PROBE, str(MODEL), str(TEXTS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def measure() -> dict[str, float]:
    """Microseconds per text of 450 characters: `wheel` and `source`."""
    python = ENVIRONMENT / "bin/python"
    if not (ENVIRONMENT / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "fasttext==0.9.3", "numpy"]
        subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
        (ENVIRONMENT / "done").touch()
    return {"wheel": probe(sys.executable), "source": probe(python)}


def main() -> None:
    figures = measure()
    print("Language identification by lid.176.ftz, texts of 450 characters, one core.\n")
    print("| fastText | µs per text | ratio |")
    print("|---|---:|---:|")
    for name, label in (
        ("wheel", "fasttext-numpy2-wheel (default)"),
        ("source", "fasttext 0.9.3, built from source"),
    ):
        print(f"| {label} | {figures[name]:.1f} | {figures['wheel'] / figures[name]:.2f} |")


if __name__ == "__main__":
    main()
