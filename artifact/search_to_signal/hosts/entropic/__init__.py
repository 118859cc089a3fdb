"""TTT-Discover's search: a reuse buffer, and one program to build on."""
