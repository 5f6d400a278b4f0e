# SPDX-License-Identifier: Apache-2.0
"""Writes the table that hardcase.toml trains on: a row a letter, with its thumbnail and HOG, and the label it is of.

    python examples/labels/label_table.py

codes.npz holds the images, labels.parquet what the sensors give of them; it is shipped, so nobody must write it again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from label_camera import FIRST_TEST, hog, load, thumbnail

FIRST_VALID = 480


def main() -> None:
    """Write it."""
    images, codes = load()
    rows = np.array([[*thumbnail(i), *hog(i)] for letters in images for i in letters], dtype=np.int8)
    item = np.repeat(np.arange(len(codes), dtype=np.int16), [len(code) for code in codes])
    columns = {
        "item": pa.array(item),
        "split": pa.array(np.where(item < FIRST_VALID, "train", np.where(item < FIRST_TEST, "valid", "test"))),
        "letter": pa.array(list("".join(codes))),
    }
    columns |= {f"t{k}" if k < 12 else f"h{k - 12}": pa.array(values) for k, values in enumerate(rows.T)}
    out = Path(__file__).with_name("labels.parquet")
    pq.write_table(pa.table(columns), out, compression="zstd", compression_level=19)
    print(f"{out}: {len(rows)} letters of {len(codes)} labels, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
