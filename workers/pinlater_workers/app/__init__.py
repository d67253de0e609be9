"""Apps: types of job, servers and settings, from code, from files and from command lines.

app         the app itself, and its clients
catalogue   the types of job of an app
result_bounds   how large the results of a queue may be
settings    the file and the worker's options, checked
loader      apps by their names
"""

from pinlater_workers.app.app import App

__all__ = ["App"]
