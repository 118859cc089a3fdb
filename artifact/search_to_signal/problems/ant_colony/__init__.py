"""Two ant colonies with the host's bits: compiled loops, and plain torch where those cannot promise them."""
