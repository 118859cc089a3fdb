"""What a profile and a run are made of: typed settings, composed from those of each package."""
