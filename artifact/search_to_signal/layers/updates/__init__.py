"""Matched updates: made, checked."""
