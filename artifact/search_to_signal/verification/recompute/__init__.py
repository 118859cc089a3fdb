"""``s2s verify --recompute`` and ``--draws``: what is said of texts and tokens is found again from them."""
