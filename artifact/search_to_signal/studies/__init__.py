"""Whole reproductions: evidence layers in order, a plan recorded study by study, audit and report."""
