"""A stopped run goes on by another card only where that card was seen to give the same bytes."""

from collections.abc import Callable

import msgspec

from search_to_signal.loop.resuming import changes
from search_to_signal.provenance.environment import environment
from search_to_signal.records.manifest import Accelerator, Manifest

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def by_card(manifest: Manifest, name: str, memory_mib: int) -> Manifest:
    """The manifest as a card's run has it."""
    card = Accelerator(name=name, driver="1", cuda="12", memory_mib=memory_mib)
    return msgspec.structs.replace(
        manifest, environment=msgspec.structs.replace(manifest.environment, accelerator=card)
    )


def test_cards_of_one_chip_go_on_with_each_others_runs(manifest: Callable[..., Manifest]) -> None:
    """An H200 has more memory than an H100 and computes the same bits; another card is named."""
    here = msgspec.structs.replace(manifest({}), environment=environment())
    begun = by_card(here, H100, 81_559)
    assert changes(begun, by_card(here, H200, 143_771)) == []
    assert changes(begun, by_card(here, "NVIDIA A100", 81_559)) == ["environment: card"]
    assert changes(begun, here) == ["environment: card"]
