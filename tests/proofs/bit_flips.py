"""Flip single bits of a results directory, one at a time, and count how many ``s2s verify`` finds.

    python -m tests.proofs.bit_flips results/smoke            # 1,000 flips

Every flip is in a copy; files are drawn by size, bits uniformly. A flip is located when a problem names the
file that was flipped, and, for a record file, its line.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from tests.figures import print_figure

from search_to_signal.base.errors import S2SError
from search_to_signal.records.checksums import BLOCKS
from search_to_signal.verify.directory import verify


def problems(directory: Path) -> tuple[str, ...]:
    """Everything that verify says against a directory."""
    try:
        return verify(directory).problems
    except S2SError as error:
        return (str(error),)


def located(found: tuple[str, ...], name: str, line: int) -> bool:
    """Whether a problem names the file, and its line where it is a record file."""
    mine = [text for text in found if name in text]
    indexed = name.endswith(".jsonl") and name != BLOCKS
    return any(f"line {line}," in text for text in mine) if indexed else bool(mine)


def main() -> None:
    """Print the tally; exit 1 when one flip went unseen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(arguments.directory, Path(temporary) / "copy"))
        files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
        sizes = np.array([path.stat().st_size for path in files], dtype=float)
        assert problems(copy) == (), "the directory must be sound before it is damaged"
        seen = placed = 0
        for _ in range(arguments.flips):
            path = files[int(rng.choice(len(files), p=sizes / sizes.sum()))]
            data = path.read_bytes()
            bit = int(rng.integers(8 * len(data)))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            found = problems(copy)
            name = str(path.relative_to(copy))
            seen += bool(found)
            placed += located(found, name, data[: bit // 8].count(b"\n") + 1)
            if not found:
                print(f"not found: bit {bit} of {name}")
            path.write_bytes(data)
    print(f"{placed} located, over {len(files)} files")
    command = f"python -m tests.proofs.bit_flips {arguments.directory}"
    print_figure("bit_flips", command, f"{seen} of {arguments.flips} single-bit flips found")
    raise SystemExit(0 if seen == arguments.flips else 1)


if __name__ == "__main__":
    main()
