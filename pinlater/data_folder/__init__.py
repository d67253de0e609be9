"""The data folder of a server: its private files, the record of its stores and of itself, and the admin password."""
