"""Tests compute with the kernels that every command fixes, so that both give the same bits; before numpy is loaded."""

from search_to_signal.runtime import fix_kernels

fix_kernels()
