"""The seal of a results directory: archive metadata, block index and checksum lists."""

from pathlib import Path

from search_to_signal.provenance.blocks import write_blocks
from search_to_signal.provenance.checksums import write_sums
from search_to_signal.provenance.ro_crate import CRATE, describe_crate


def seal(directory: Path, title: str) -> None:
    """Write RO-Crate metadata, block index and checksum lists, in this order.

    ``title`` names the data set in the metadata. Raises RunDirectoryError for a damaged PNG.
    """
    (directory / CRATE).write_bytes(describe_crate(directory, title))
    write_blocks(directory)
    write_sums(directory)
