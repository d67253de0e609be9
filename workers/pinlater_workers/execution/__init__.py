"""One attempt at a job, wherever it runs, and the decision what becomes of it."""
