"""One live run, group by group: search and learner on one stream of candidates, and its directory."""
