"""The version of a store in SQL, which stands in its table of facts. The tables are those of SCHEMA_VERSION."""

SCHEMA_VERSION, EXTENDED_VERSION, REFERENCES_VERSION, GROUPS_VERSION, SUCCESSORS_VERSION = 2, 3, 4, 5, 6
"""A store has the second once there were extended jobs, the third while there are references to bodies, the fourth
while there are queues whose jobs have groups, and the last once a job had a successor. What an older version must not
open any more gets the next number.
"""

LAST_VERSION = SUCCESSORS_VERSION
