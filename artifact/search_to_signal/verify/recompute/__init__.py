"""Texts, programs, searches and tables of a results directory, recomputed and compared with the records."""
