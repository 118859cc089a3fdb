"""Close a results directory: what it contains, and the checks that find any change."""

from pathlib import Path

from search_to_signal.provenance.blocks import write_blocks
from search_to_signal.provenance.checksums import write_sums
from search_to_signal.provenance.ro_crate import CRATE, describe_crate


def seal(directory: Path, title: str) -> None:
    """Write RO-Crate metadata, block index and checksum lists, in this order.

    Raises RunDirectoryError for a damaged PNG.
    """
    (directory / CRATE).write_bytes(describe_crate(directory, title))
    write_blocks(directory)
    write_sums(directory)
