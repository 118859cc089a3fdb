"""The two search hosts: ours, and the released CALM source used as it is."""
