"""Every test computes with the kernels that every command fixes; no property has a time limit per example."""

from hypothesis import settings
from spec import profiles

from search_to_signal.runtime import fix_kernels

fix_kernels()  # before numpy is loaded, so that bits agree
profiles.register()
settings.load_profile("quick")
