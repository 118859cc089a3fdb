"""Mappings and normalizers within trainers of others: TRL's and verl's. Nothing here imports torch."""
