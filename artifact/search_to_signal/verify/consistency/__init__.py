"""Consistency of recorded files with each other: nothing is executed, and torch is not needed."""
