"""Tests compute with the kernels that every command fixes, before numpy is loaded, so bits agree."""

from search_to_signal.runtime import fix_kernels

fix_kernels()
