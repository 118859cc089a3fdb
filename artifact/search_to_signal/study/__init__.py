"""Evidence that ships: results directories packed into few bytes, and tables and pages rebuilt from them."""
