"""Every field of a good log of every format, replaced by every odd value: prints what ends in a traceback.

    PYTHONPATH=.:artifact python tests/proofs/changed_logs.py [SHARE] [LOG ...]

10,000 changes take about twenty minutes; SHARE of them, drawn by a fixed seed, that share of the time.
"""

import random
import sys
import tempfile
import traceback
from pathlib import Path

from tests.changed_logs import audited_every_way, changes, few_normalizers


def main(share: float, logs: set[str]) -> int:
    """Try the changes; the exit code is 1 where one of them ended in anything but an error of one line."""
    drawn, tried, failed = random.Random(65), 0, 0
    with tempfile.TemporaryDirectory() as directory, few_normalizers():
        for change in changes(
            Path(directory), lambda log, place, value: (not logs or log in logs) and drawn.random() < share
        ):
            tried += 1
            try:
                audited_every_way(change)
            except Exception as error:  # noqa: BLE001
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"{change.log} {change.place} = {change.value}: {error!r} in {where.name}")
    print(f"{tried} changes, {failed} tracebacks")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, set(sys.argv[2:])))
