"""Where runs go: their directories and files, what is there already, and the rest executed."""
