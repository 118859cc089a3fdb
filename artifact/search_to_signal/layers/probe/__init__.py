"""Common-context probe: run, checked, recomputed."""
