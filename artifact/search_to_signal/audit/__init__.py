"""Audit of anybody's run: its rewards as groups, from the logs that the framework wrote."""
