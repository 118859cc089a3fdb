"""Verification of a results directory: consistency, recomputation, rerun, and token draws."""
