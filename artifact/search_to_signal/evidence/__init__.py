"""Evidence that ships: results directories packed into few bytes, and all that is made from them again."""
