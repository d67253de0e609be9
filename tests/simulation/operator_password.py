"""The admin password of simulated clusters, as operators send it and as servers know it."""

from __future__ import annotations

from pinlater.data_folder.password import hash_from_file

PASSWORD = f"pinlater-{'operator' * 5}abc"
"""Like one that a server made: it is checked at once, and in no thread."""

PASSWORD_HASH = hash_from_file(PASSWORD)
