"""The shipped models: trained from a recipe, measured on prompts that training never saw."""
