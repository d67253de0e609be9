"""Histories: what callers asked of a cluster and what they were answered, to be judged afterwards.

call_events.py     the lines of a history: begins and ends of calls, and notes of what no caller can see
plain_form.py      structs of the interface as JSON, without secrets, and with digests in place of bodies
recorder.py        what writes the calls of a process down, by a clock and to a place of its caller's choice
history_files.py   histories as files of JSON lines, read one by one or merged by time
history_folder.py  a folder in which each process has a file of its own
job_parts.py       what a call is to each of its jobs, from which the story of a job and the open jobs follow
checker/           the judge: one order explains a history, or a few of its calls contradict docs/semantics.md

A client records by a transport around its own (client/recorded_calls.py). docs/history.md describes the format.
"""
