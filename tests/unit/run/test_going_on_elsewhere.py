"""A stopped run goes on by another card only where that card was seen to give the same bytes."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from search_to_signal.records.manifest import Accelerator, Manifest
from search_to_signal.records.provenance import accelerator, environment
from search_to_signal.run.resuming import changes

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def by_card(manifest: Manifest, name: str, memory_mib: int, **share: str) -> Manifest:
    """The manifest as a card's run has it."""
    card = Accelerator(name=name, driver="1", cuda="12", memory_mib=memory_mib, **share)
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


def test_another_share_of_a_card_computes_other_bits(manifest: Callable[..., Manifest]) -> None:
    """Of eight runs under a share of 40 % all drew other tokens from their first group on."""
    here = msgspec.structs.replace(manifest({}), environment=environment())
    begun, whole = (by_card(here, H200, 143_771, **share) for share in ({"share": "40"}, {}))
    assert changes(begun, by_card(here, H100, 81_559, share="40")) == []
    assert changes(begun, whole) == changes(whole, begun) == ["environment: share of the card"]


def test_a_manifest_has_the_share_of_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As MPS was told it for this process; a whole card is named alone."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho NVIDIA H200, 580.159.04, 143771\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for share, kind in (("40", "NVIDIA H200 (40 % of it)"), ("", "NVIDIA H200")):
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share)
        card = accelerator()
        assert card is not None
        assert card.kind == kind
