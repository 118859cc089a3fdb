"""The executable specification: one requirement, one test, one sentence. See README.md."""
