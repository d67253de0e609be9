"""Flows in Python: trees of stages of jobs, filled and followed by programs. docs/workers-flows.md."""
