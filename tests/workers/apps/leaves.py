"""An app that ends the program when it is imported."""

from __future__ import annotations

import sys

sys.exit(4)
