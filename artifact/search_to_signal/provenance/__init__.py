"""Checksums, signatures, environment and source facts, and archive metadata of results directories."""
