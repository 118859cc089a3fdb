"""Imported before numpy, it has a proof compute with the kernels of every command: bits are compared."""

from search_to_signal.base.processes import fix_kernels

fix_kernels()
