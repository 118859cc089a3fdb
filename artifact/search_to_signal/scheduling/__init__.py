"""Any number of runs: where each goes, what is there already, and the rest executed side by side."""
