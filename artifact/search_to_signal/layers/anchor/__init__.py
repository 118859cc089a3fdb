"""The resource anchor: run, checked."""
