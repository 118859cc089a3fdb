"""Stands in for the GPU library that the released host imports and does not use."""
