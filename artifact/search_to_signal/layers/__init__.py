"""The evidence layers, a folder each: settings, how it runs, checks, tables; a profile's in order."""
