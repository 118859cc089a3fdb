"""Tests of the specification itself: wrong implementations, each rejected by a named requirement."""
