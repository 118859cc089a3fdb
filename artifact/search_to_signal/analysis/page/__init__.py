"""The page that a reviewer opens first: one HTML file that asks nothing of the network and runs no script."""
