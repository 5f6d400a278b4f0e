# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's checks of an estimator and our own, for every estimator by name; the tests run those of most.

python -m benchmarks run checks [NAME ...]      ends with status 1 if a check fails
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

from sklearn.utils.estimator_checks import check_estimator

from hardcase_train.checks import ALL_CHECKS, run_check
from tests.helpers.train.estimators import PEERS, few

EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "rows are drawn by row"}


def failures(name: str) -> list[str]:
    """What an estimator fails."""
    found = check_estimator(few(name), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    failed = [one["check_name"] for one in found if one["status"] == "failed"]
    for check in ALL_CHECKS:
        try:
            run_check(check, few(name))
        except AssertionError as error:
            failed.append(f"{check.__name__}: {error}")
    return failed


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")


def run(args: Any) -> int:
    """Run, and print a line for each estimator; 1 if a check fails."""
    warnings.simplefilter("ignore")
    status = 0
    for name in args.names or sorted(PEERS):
        began = time.process_time()
        failed = failures(name)
        status |= bool(failed)
        print(f"{name}: {', '.join(failed) or 'passes'} ({time.process_time() - began:.0f} s)", flush=True)
    return status
