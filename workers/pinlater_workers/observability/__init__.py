"""Counts, the pages and packets that carry them, and logs."""
