"""Close a results directory: what it contains, what made it, and the checks that find any change."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from search_to_signal.provenance.blocks import BLOCKS, blocks_of
from search_to_signal.provenance.checksums import listed_files, write_sums
from search_to_signal.provenance.crate import CRATE, crate
from search_to_signal.provenance.sbom import SBOM, bill_of_materials


def seal(directory: Path, title: str, extras: Sequence[str] = ()) -> None:
    """Write bill of materials, RO-Crate metadata, block index and checksum lists, in this order.

    ``extras`` are those of the installation that ran. Raises RunDirectoryError for a damaged PNG.
    """
    (directory / SBOM).write_bytes(bill_of_materials(extras))
    (directory / CRATE).write_bytes(crate(directory, title))
    indexed = [path for path in listed_files(directory) if path != directory / BLOCKS]
    rows = (msgspec.json.encode(blocks_of(directory, path)) + b"\n" for path in indexed)
    (directory / BLOCKS).write_bytes(b"".join(rows))
    write_sums(directory)
