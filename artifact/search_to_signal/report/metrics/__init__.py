"""Numbers of recorded groups and runs: arrays in, numbers out, no tables."""
