"""Held-out evaluation: run, checked, recomputed."""
