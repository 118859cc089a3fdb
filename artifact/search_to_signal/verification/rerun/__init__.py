"""Runs executed again, and compared to the bit."""
