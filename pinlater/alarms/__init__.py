"""Alarms: the table of conditions, the one judge of them, and where the servers keep what it found."""
