"""Model directories from what distributors publish: found or downloaded, checked, converted, described."""
