"""One live run: search and learner side by side on one stream of evaluated candidates."""
