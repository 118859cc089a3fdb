"""Whether recorded tokens are those that a run's numbers draw from its model."""
