"""Does the released host do what ours does? One file per family of checks; ``comparison`` runs them all."""
