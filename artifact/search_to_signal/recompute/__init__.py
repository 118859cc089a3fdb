"""``s2s verify --recompute``: what a results directory says of its texts is found again from the texts."""
