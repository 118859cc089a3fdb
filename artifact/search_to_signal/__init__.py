"""From Search to Signal: one evaluated candidate stream, two consumers (search and learner)."""

__version__ = "0.1.0"
