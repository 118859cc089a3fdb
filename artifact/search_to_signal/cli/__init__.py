"""The s2s command."""

from search_to_signal.cli.main import main

__all__ = ["main"]
