"""The released CALM source, used as it is: imported from a checkout, observed, and given our rewards.

It runs with the rights of this process and is not isolated: open only a checkout that you trust.
"""
