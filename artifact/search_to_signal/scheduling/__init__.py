"""Execution of many runs: those planned, those finished already, and the others executed in parallel."""
