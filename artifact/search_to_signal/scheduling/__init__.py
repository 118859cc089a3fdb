"""Execution of many runs: the slot of each run, finished runs, and the others executed in parallel."""
