"""What came out of the plan of the shipped evidence: estimates, verdicts, deviations."""
