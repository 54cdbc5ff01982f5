"""Makes the quick start's corpus again.

    python examples/corpus/build.py --planted                  # the planted set and labels.json
    python examples/corpus/build.py --sources ORIGIN           # every source, from the unpacked packages
    python examples/corpus/build.py --planted --out /some/dir  # elsewhere, to compare

ORIGIN is a folder with the packages that README.md lists, unpacked as it says.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from make import planted, sources, web  # noqa: E402


def build_sources(origin: Path, corpus: Path) -> None:
    out = corpus / "sources"
    shutil.rmtree(out / "books", ignore_errors=True)  # the one source of many files: leave none that is gone
    for make in (sources.wiki, sources.books, sources.speeches, sources.qa, sources.code, web.docs):
        print(f"{make.__name__}: {make(origin, out)} records")
    count = sources.held_out(origin, corpus, web.foreign_paragraphs(origin))
    print(f"held-out paragraphs: {count}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="build.py",
        description="Make the example corpus. Running it again gives the same bytes.",
        epilog="example: python examples/corpus/build.py --sources ~/origin --planted",
    )
    parser.add_argument(
        "--sources", metavar="ORIGIN", type=Path, help="make the sources from the packages in ORIGIN"
    )
    parser.add_argument("--planted", action="store_true", help="make the planted set and labels.json")
    parser.add_argument("--seed", type=int, default=planted.SEED, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: this one)")
    args = parser.parse_args(argv)
    if not args.sources and not args.planted:
        parser.error("say --sources ORIGIN, --planted, or both")
    if args.sources and not args.sources.is_dir():
        parser.error(f"--sources: no folder {args.sources}")
    try:
        if args.sources:
            build_sources(args.sources, args.out)
        if args.planted:
            base = args.out if args.sources else HERE
            print(f"planted: {planted.plant(base, args.out, args.seed)} records")
    except FileNotFoundError as error:
        print(f"build.py: missing {error.filename}; README.md lists the packages to unpack", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
