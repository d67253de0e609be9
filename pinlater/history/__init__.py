"""Histories: what callers asked of a cluster and what they were answered, to be judged afterwards.

events.py         the lines of a history: begins and ends of calls, and notes of what no caller can see
plain_form.py     structs of the interface as JSON, without secrets, and with digests in place of bodies
recorder.py       what writes the calls of a process down, by a clock and to a place of its caller's choice
history_files.py  histories as files of JSON lines: read, written, and merged by time

A client records by a transport around its own (client/recorded_calls.py). docs/history.md describes the format.
"""
