"""Filters over jobs: the language in which people write them, and the changes of all jobs that one finds."""
