"""Writes the records that examples/digits.sx learns from, build/models/digits/digits.npz.

    python examples/digits.py [FILE.npz]

They are scikit-learn's digits: a line of the file is 64 pixels from 0 to 16, and which digit it is.
The file has them writer by writer, so they are shuffled, always in the same way.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from sexpgpu.tools.fetch_models import fetch_model


def main(file: str | None = None) -> None:
    """`image` [1797, 1, 8, 8] f32 from 0 to 1, and `digit` [1797] i32."""
    source = fetch_model("digits")["digits.csv.gz"]
    lines = np.loadtxt(source, delimiter=",", dtype=np.float32)
    lines = np.random.default_rng(0).permutation(lines)
    image, digit = lines[:, :64].reshape(-1, 1, 8, 8) / 16, lines[:, 64].astype(np.int32)
    target = Path(file) if file else source.with_name("digits.npz")
    np.savez(target, image=image, digit=digit)
    print(f"{target}: {len(digit):,} digits")


if __name__ == "__main__":
    main(*sys.argv[1:])
