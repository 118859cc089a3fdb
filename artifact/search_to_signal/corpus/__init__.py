"""The training corpus of the embedded models: a probabilistic grammar of heuristics and of their defects."""
