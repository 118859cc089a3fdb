"""Records are the waist: everything before them makes evidence, everything after them only reads it."""
