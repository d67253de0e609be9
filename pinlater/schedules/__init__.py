"""Recurring schedules: their times, their records in the cluster, and their firing."""
