# SPDX-License-Identifier: Apache-2.0
"""Benchmarks by name.

python -m benchmarks list                    each with what it shows and how long it took
python -m benchmarks run NAME [--help ...]   measure, keep the results, write the page
python -m benchmarks render NAME ...         write pages from kept results
python -m benchmarks render NAME --all       print the page with every row that was measured
python -m benchmarks claims [--check]        the table of claims in docs/benchmarks/README.md
"""

from __future__ import annotations

import sys

from benchmarks import claims, runner


def main(words: list[str]) -> int:
    """Do what the first word says."""
    match words:
        case ["list"]:
            print("\n".join(map(runner.described, runner.names())))
            return 0
        case ["run", name, *more]:
            return runner.run(name, more)
        case ["render", name, "--all"]:
            print(runner.whole(name))
            return 0
        case ["render", _, *_]:
            return max(map(runner.render, words[1:]))
        case ["claims", *more] if more in ([], ["--check"]):
            return claims.write(is_check=bool(more))
    print(__doc__)
    return 0 if words in (["--help"], ["-h"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
