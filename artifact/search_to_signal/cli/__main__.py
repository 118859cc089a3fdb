"""``python -m search_to_signal.cli``."""

import sys

from search_to_signal.cli import main

sys.exit(main())
