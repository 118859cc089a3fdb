"""Whether recorded files agree with each other. Nothing is run, and torch is not needed."""
