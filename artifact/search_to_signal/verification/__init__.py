"""A results directory checked: records against each other, recomputed, run again, tokens drawn again."""
