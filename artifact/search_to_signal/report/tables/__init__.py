"""Every table of a report: one module per family, its entry in ``catalogue``."""
