"""Frozen restarts: run, checked."""
