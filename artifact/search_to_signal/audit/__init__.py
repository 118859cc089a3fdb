"""Audit of anybody's runs: what a normalizer made of the rewards."""
