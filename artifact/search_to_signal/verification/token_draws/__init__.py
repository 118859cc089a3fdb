"""Recorded tokens, compared with those that the random numbers of a run draw from its model."""
