"""What every package stands on; nothing here knows of records, programs or models."""
