"""Runs executed again from their configurations and compared with their records to the bit."""
