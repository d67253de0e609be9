-- The statements of an SQLite shard, beside those of common.sql. Same names as in mysql.sql; a comment where SQLite has
-- to differ.
--
-- A list of ids is one bound value, a JSON array, so that the text of a statement never changes and stays prepared.
-- A transaction that writes begins with BEGIN IMMEDIATE, which locks the file: so what a statement has selected still
-- holds when the next one changes it, and there is no FOR UPDATE.
-- NOT INDEXED leaves the primary key as the only way to a row: else the planner may walk the claim index instead.

-- name: schema
CREATE TABLE IF NOT EXISTS pinlater_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- AUTOINCREMENT: the id of a deleted queue is never used again
    name TEXT UNIQUE,                     -- NULL: deleted, its jobs are freed in slices
    created_at_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pinlater_sequence (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    next_id INTEGER NOT NULL
);
INSERT OR IGNORE INTO pinlater_sequence (id, next_id) VALUES (1, 1000000000000000);
CREATE TABLE IF NOT EXISTS pinlater_jobs (
    id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    run_after_ms INTEGER NOT NULL,
    attempts_allowed INTEGER NOT NULL,
    attempts_remaining INTEGER NOT NULL,
    crashes INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    claimed_at_ms INTEGER,
    claim_timeout_ms INTEGER,
    claim_expires_at_ms INTEGER,
    finished_at_ms INTEGER,
    claim_descriptor TEXT,
    custom_status TEXT NOT NULL,
    body_bytes INTEGER NOT NULL,
    extended INTEGER,
    job_keys BLOB,
    body BLOB NOT NULL -- last, so that a large one is not read on the way to another column
);
-- The claim's filter and its order; SQLite ends every index with the row's id.
CREATE INDEX IF NOT EXISTS pinlater_jobs_order ON pinlater_jobs (queue_id, state, priority, run_after_ms);
-- Claims that are due, over the whole shard. Partial: only jobs in that state cost an entry (MySQL has no such index).
CREATE INDEX IF NOT EXISTS pinlater_jobs_claims ON pinlater_jobs (claim_expires_at_ms) WHERE state = 1;
-- What has ended, per queue, since each has its own time to live.
CREATE INDEX IF NOT EXISTS pinlater_jobs_ended_2 ON pinlater_jobs (queue_id, finished_at_ms) WHERE state = 2;
CREATE INDEX IF NOT EXISTS pinlater_jobs_ended_3 ON pinlater_jobs (queue_id, finished_at_ms)
    WHERE state = 3 AND claim_expires_at_ms IS NULL;
-- A failed job that waits to become a dead letter is one that has a claim expiry: `retry` and `remove` take the mark with it.
CREATE INDEX IF NOT EXISTS pinlater_jobs_marked ON pinlater_jobs (queue_id)
    WHERE state = 3 AND claim_expires_at_ms IS NOT NULL;
CREATE TABLE IF NOT EXISTS pinlater_counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO pinlater_counters (name, value) VALUES ('revision', 0);
CREATE TABLE IF NOT EXISTS pinlater_records (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    deleted_version TEXT NOT NULL,
    revision INTEGER NOT NULL UNIQUE,
    text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_records_deleted ON pinlater_records (deleted_version);
CREATE TABLE IF NOT EXISTS pinlater_shares (
    queue_id INTEGER PRIMARY KEY,
    share INTEGER NOT NULL,
    version INTEGER NOT NULL
);
-- What few jobs have. Where copies came from and went to; origin_attempts is what the origin of a dead letter was allowed.
-- How often in a row nobody received the job, and its attempts and run_after meanwhile (`add_columns` in older tables).
-- The trail of a job: the record of its attempts before the last (packed_trails.py), and its log lines. They lie here,
-- where any version of a server removes them with the job.
CREATE TABLE IF NOT EXISTS pinlater_links (
    job_id INTEGER PRIMARY KEY,
    origin TEXT,
    origin_attempts INTEGER,
    moved_to TEXT,
    undelivered INTEGER,
    undelivered_attempts INTEGER,
    undelivered_run_after_ms INTEGER,
    attempts BLOB,
    log_lines BLOB
);
CREATE TABLE IF NOT EXISTS pinlater_notes (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX IF NOT EXISTS pinlater_notes_expiry ON pinlater_notes (kind, expires_at_ms);
CREATE TABLE IF NOT EXISTS pinlater_buckets (
    queue TEXT PRIMARY KEY,
    tokens REAL NOT NULL,
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
-- What extended jobs have, apart from the jobs; `extended` of a job says what of it (see records.py), NULL: nothing.
-- Its keys are in `job_keys` (see HeldKeys): most that have keys have nothing else.
CREATE TABLE IF NOT EXISTS pinlater_extensions (
    job_id INTEGER PRIMARY KEY,
    claim_timeout_ms INTEGER,
    expires_at_ms INTEGER,
    cancelled_by TEXT,
    fraction REAL,
    progress TEXT,
    progress_at_ms INTEGER,
    tags BLOB
);
-- The jobs of each tag.
CREATE TABLE IF NOT EXISTS pinlater_tags (
    queue_id INTEGER NOT NULL,
    tag BLOB NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (queue_id, tag, job_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_tags_of_job ON pinlater_tags (job_id);
-- Dedupe keys and send ids. until_ms: NULL while the job is live, then when the entry counts no more; remove_at_ms: when
-- `prune` removes it; elsewhere: the descriptor of a job of another shard.
CREATE TABLE IF NOT EXISTS pinlater_keys (
    queue_id INTEGER NOT NULL,
    name BLOB NOT NULL,
    job_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    window_ms INTEGER NOT NULL,
    is_send_id INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    until_ms INTEGER,
    remove_at_ms INTEGER,
    elsewhere TEXT,
    PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_keys_over ON pinlater_keys (remove_at_ms) WHERE remove_at_ms IS NOT NULL;
-- Serialize keys with a live job: the first of them. `behind`: a shard id; all wait until the barrier is lifted.
CREATE TABLE IF NOT EXISTS pinlater_chains (
    serialize_key BLOB NOT NULL PRIMARY KEY,
    job_id INTEGER NOT NULL,
    place INTEGER NOT NULL,
    queue_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    behind TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_waiting (
    serialize_key BLOB NOT NULL,
    place INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (serialize_key, place)
) WITHOUT ROWID;
-- Of the keys behind whose first job others wait: how many, since when it is the first, and its queue.
CREATE TABLE IF NOT EXISTS pinlater_blocked (
    serialize_key BLOB NOT NULL PRIMARY KEY,
    waiting INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    queue_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_blocked_waiting ON pinlater_blocked (waiting);
CREATE INDEX IF NOT EXISTS pinlater_blocked_since ON pinlater_blocked (since_ms);
CREATE INDEX IF NOT EXISTS pinlater_blocked_queue ON pinlater_blocked (queue_id);
CREATE TABLE IF NOT EXISTS pinlater_barriers (
    serialize_key BLOB NOT NULL PRIMARY KEY,
    shard_id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_expiries (
    job_id INTEGER PRIMARY KEY,
    expires_at_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_expiries_due ON pinlater_expiries (expires_at_ms);
-- What has ended as CANCELLED, or was REPLAYED since. Apart, since an index of it over all jobs would have to be built when a store is upgraded.
CREATE TABLE IF NOT EXISTS pinlater_cancelled (
    job_id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    finished_at_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_cancelled_ended ON pinlater_cancelled (queue_id, finished_at_ms);
CREATE TABLE IF NOT EXISTS pinlater_results (
    job_id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    attempts_remaining INTEGER NOT NULL,
    finished_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    result_bytes INTEGER NOT NULL,
    result BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_results_expiry ON pinlater_results (expires_at_ms);
CREATE TABLE IF NOT EXISTS pinlater_firings (
    schedule BLOB NOT NULL PRIMARY KEY,
    mark BLOB NOT NULL
) WITHOUT ROWID;
-- References to bodies (held_references.py): of a job's body (kind 0) or result (1); how many further jobs share one; and
-- those that no job has any more. `spot` is by chance, so that each of these comes up in its turn.
CREATE TABLE IF NOT EXISTS pinlater_held (
    job_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    reference BLOB NOT NULL,
    PRIMARY KEY (job_id, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_shared (
    reference BLOB NOT NULL PRIMARY KEY,
    others INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_dropped (
    reference BLOB NOT NULL PRIMARY KEY,
    spot INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_dropped_spots ON pinlater_dropped (spot);
-- Groups (group_lines.py): the lines in which due jobs wait, the turns of groups, and the virtual time of each priority.
-- `waits`: 0: the group has no job in line; 1: it waits for its turn; else it is held back, until that time.
CREATE TABLE IF NOT EXISTS pinlater_lines (
    job_id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    grp BLOB NOT NULL,
    run_after_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_lines_order ON pinlater_lines (queue_id, priority, grp, run_after_ms);
CREATE TABLE IF NOT EXISTS pinlater_turns (
    queue_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    grp BLOB NOT NULL,
    turn REAL NOT NULL,
    waits INTEGER NOT NULL,
    PRIMARY KEY (queue_id, priority, grp)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_turns_order ON pinlater_turns (queue_id, priority, waits, turn, grp);
CREATE TABLE IF NOT EXISTS pinlater_virtual_times (
    queue_id INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    turn REAL NOT NULL,
    PRIMARY KEY (queue_id, priority)
) WITHOUT ROWID;
-- Permits of groups (group_permits.py), of claims on all shards, by job; what each group has beside them, with the shards
-- that wait, and until when that is of use; and what groups have room for on this shard.
CREATE TABLE IF NOT EXISTS pinlater_permits (
    queue_id INTEGER NOT NULL,
    holder BLOB NOT NULL,
    grp BLOB NOT NULL,
    priority INTEGER NOT NULL,
    claim_descriptor TEXT NOT NULL,
    check_at_ms INTEGER NOT NULL,
    PRIMARY KEY (queue_id, holder)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_permits_of_group ON pinlater_permits (queue_id, grp);
CREATE INDEX IF NOT EXISTS pinlater_permits_due ON pinlater_permits (queue_id, check_at_ms);
CREATE TABLE IF NOT EXISTS pinlater_permit_groups (
    queue_id INTEGER NOT NULL,
    grp BLOB NOT NULL,
    tokens REAL NOT NULL,
    at_ms INTEGER NOT NULL,
    full_at_ms INTEGER NOT NULL,
    waiting BLOB NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (queue_id, grp)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_permit_groups_past ON pinlater_permit_groups (queue_id, until_ms);
CREATE TABLE IF NOT EXISTS pinlater_rooms (
    queue_id INTEGER NOT NULL,
    grp BLOB NOT NULL,
    jobs INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (queue_id, grp)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pinlater_rooms_past ON pinlater_rooms (queue_id, until_ms);

-- name: upgrade
-- Indexes of version 1.
DROP INDEX IF EXISTS pinlater_jobs_succeeded;
DROP INDEX IF EXISTS pinlater_jobs_failed;

-- name: tables
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: lacks_columns
-- Servers before these columns go on using the tables that have them: the version of the tables stays.
SELECT (SELECT COUNT(*) FROM pragma_table_info('pinlater_links') WHERE name = 'undelivered') = 0,
    (SELECT COUNT(*) FROM pragma_table_info('pinlater_jobs') WHERE name = 'extended') = 0,
    (SELECT COUNT(*) FROM pragma_table_info('pinlater_links') WHERE name = 'log_lines') = 0,
    (SELECT COUNT(*) FROM pragma_table_info('pinlater_dropped') WHERE name = 'spot') = 0,
    (SELECT COUNT(*) FROM pragma_table_info('pinlater_extensions') WHERE name = 'tags') = 0

-- name: add_columns
ALTER TABLE pinlater_links ADD COLUMN undelivered_attempts INTEGER;
ALTER TABLE pinlater_links ADD COLUMN undelivered_run_after_ms INTEGER;
ALTER TABLE pinlater_links ADD COLUMN undelivered INTEGER;

-- name: add_trails
ALTER TABLE pinlater_links ADD COLUMN attempts BLOB;
ALTER TABLE pinlater_links ADD COLUMN log_lines BLOB;

-- name: add_extended
-- The text of the schema alone changes.
ALTER TABLE pinlater_jobs ADD COLUMN job_keys BLOB;
ALTER TABLE pinlater_jobs ADD COLUMN extended INTEGER;

-- name: add_tags
ALTER TABLE pinlater_extensions ADD COLUMN tags BLOB

-- name: has_meta
SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'pinlater_meta'

-- name: insert_meta
INSERT OR IGNORE INTO pinlater_meta (name, value) VALUES (?, ?)

-- name: ping
-- julianday is exact to a millisecond; the fraction is rounded, not cut
SELECT
    (SELECT value FROM pinlater_meta WHERE name = 'shard_id'),
    (SELECT value FROM pinlater_meta WHERE name = 'store_id'),
    CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER),
    0,
    (SELECT next_id FROM pinlater_sequence)

-- name: create_queue
INSERT OR IGNORE INTO pinlater_queues (name, created_at_ms) VALUES (?, ?)

-- name: versions_of_config_entries
SELECT name, version FROM pinlater_records WHERE name IN (SELECT value FROM json_each(?))

-- name: config_entries
SELECT name, version, text, deleted_version, revision FROM pinlater_records INDEXED BY sqlite_autoindex_pinlater_records_2
WHERE revision > ? ORDER BY revision LIMIT ?

-- name: tombstones
SELECT name FROM pinlater_records INDEXED BY pinlater_records_deleted
WHERE deleted_version > '' AND deleted_version < ? AND version = deleted_version LIMIT ?

-- name: remove_config_entries
DELETE FROM pinlater_records WHERE name IN (SELECT value FROM json_each(?))

-- name: queue_id_for_enqueue
SELECT id FROM pinlater_queues WHERE name = ?

-- name: names_of_queues
SELECT id, name FROM pinlater_queues WHERE id IN (SELECT value FROM json_each(?))

-- name: ids_of_queues
SELECT id, name FROM pinlater_queues WHERE name IN (SELECT value FROM json_each(?))

-- name: allocate_ids
UPDATE pinlater_sequence SET next_id = max(next_id, ?) + ? WHERE id = 1 RETURNING next_id

-- name: insert_jobs_row
{new_job_row}

-- name: ready_in_priority
SELECT ?, COUNT(*) FROM (SELECT 1 FROM pinlater_jobs
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?)
        AND state = 0 AND priority = ? AND run_after_ms <= ? LIMIT ?)

-- name: in_line_in_priority
-- With how many groups wait for turns, and 1 where some are held back.
SELECT ?, (SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_turns
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND priority = ? AND waits = 1 LIMIT ?)),
    (SELECT 1 FROM pinlater_turns
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND priority = ? AND waits > 1 LIMIT 1),
    COUNT(*) FROM (SELECT 1 FROM pinlater_jobs
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND state = 8 AND priority = ? LIMIT ?)

-- name: any_expired
SELECT -1, COUNT(*) FROM (SELECT 1 FROM pinlater_expiries WHERE expires_at_ms <= ? LIMIT 1)

-- name: next_due_in_priority
SELECT queue.name, (SELECT run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = queue.id AND state = 0 AND priority = ? ORDER BY run_after_ms LIMIT 1), (SELECT 1 FROM pinlater_virtual_times turns WHERE turns.queue_id = queue.id LIMIT 1)
FROM pinlater_queues queue WHERE queue.name IN (SELECT value FROM json_each(?))

-- name: next_in_line_in_priority
SELECT queue.name, (SELECT run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = queue.id AND state = 8 AND priority = ? ORDER BY run_after_ms LIMIT 1)
FROM pinlater_queues queue WHERE queue.name IN (SELECT value FROM json_each(?))

-- name: candidates
-- One priority at a time: over several, SQLite would sort all that is eligible.
SELECT {candidate}
FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = 0 AND priority = ? AND run_after_ms <= ?
ORDER BY run_after_ms, id LIMIT ?

-- name: oldest_ready
-- Those whose time is over are passed over.
SELECT run_after_ms, id FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms <= ?
    AND NOT EXISTS (SELECT 1 FROM pinlater_expiries WHERE job_id = id AND expires_at_ms <= ?)
ORDER BY run_after_ms, id LIMIT ?

-- name: listed
SELECT {candidate}, state
FROM pinlater_jobs NOT INDEXED
WHERE queue_id = ? AND id IN (SELECT value FROM json_each(?))

-- name: claim
UPDATE pinlater_jobs NOT INDEXED SET state = 1, claim_descriptor = ?, claimed_at_ms = ?, claim_timeout_ms = ?,
    claim_expires_at_ms = ?, updated_at_ms = ?
WHERE id IN (SELECT value FROM json_each(?))

-- name: claim_several
-- The same for several claims of one time-out.
UPDATE pinlater_jobs NOT INDEXED SET state = 1, claim_descriptor = claimed.column2, claimed_at_ms = ?, claim_timeout_ms = ?,
    claim_expires_at_ms = ?, updated_at_ms = ?
FROM (VALUES /*rows*/) claimed WHERE pinlater_jobs.id = claimed.column1

-- name: bodies
SELECT id, body, extended FROM pinlater_jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: in_progress
SELECT {in_progress}
FROM pinlater_jobs NOT INDEXED
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND state = 1
    AND id IN (SELECT value FROM json_each(?))

-- name: last_seen
-- While a job is in progress, only its claim and its checkpoints update it.
SELECT {in_progress}, updated_at_ms
FROM pinlater_jobs NOT INDEXED
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND state = 1
    AND id IN (SELECT value FROM json_each(?))

-- name: when_claimed
SELECT {in_progress}, claim_expires_at_ms, run_after_ms
FROM pinlater_jobs NOT INDEXED
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND state = 1
    AND id IN (SELECT value FROM json_each(?))

-- name: succeed
UPDATE pinlater_jobs NOT INDEXED SET state = 2, finished_at_ms = ?, updated_at_ms = ?, claim_expires_at_ms = NULL
WHERE id IN (SELECT value FROM json_each(?))

-- name: succeed_with_status
-- append_status and prepend_status are ours: SQLite's own functions of text stop at a NUL character
UPDATE pinlater_jobs NOT INDEXED SET state = 2, finished_at_ms = ?, updated_at_ms = ?, claim_expires_at_ms = NULL,
    custom_status = append_status(custom_status, ?, ?)
WHERE id IN (SELECT value FROM json_each(?))

-- name: fail
UPDATE pinlater_jobs NOT INDEXED SET state = 3, attempts_remaining = 0, finished_at_ms = ?, updated_at_ms = ?,
    claim_expires_at_ms = ?, crashes = crashes + ?, custom_status = append_status(custom_status, ?, ?)
WHERE id IN (SELECT value FROM json_each(?))

-- name: retry
UPDATE pinlater_jobs NOT INDEXED SET state = 0, attempts_remaining = attempts_remaining - 1, run_after_ms = ?,
    updated_at_ms = ?, {no_claim}, crashes = crashes + ?, custom_status = append_status(custom_status, ?, ?)
WHERE id IN (SELECT value FROM json_each(?))

-- name: requeue
UPDATE pinlater_jobs NOT INDEXED SET state = 0, updated_at_ms = ?, {no_claim}
WHERE id IN (SELECT value FROM json_each(?))

-- name: heartbeat
UPDATE pinlater_jobs NOT INDEXED SET
    claim_expires_at_ms = max(? + claim_timeout_ms, min(coalesce(?, run_after_ms) + claim_timeout_ms, ?),
        CASE WHEN max(updated_at_ms, claimed_at_ms) BETWEEN ? AND ? THEN claim_expires_at_ms + 1 ELSE 0 END),
    updated_at_ms = CASE WHEN max(updated_at_ms, claimed_at_ms) BETWEEN ? AND ? THEN max(updated_at_ms, claimed_at_ms) + 1 ELSE ? END,
    run_after_ms = coalesce(?, run_after_ms)
WHERE id IN (SELECT value FROM json_each(?))

-- name: checkpoint
UPDATE pinlater_jobs SET attempts_allowed = coalesce(?, attempts_allowed),
    attempts_remaining = coalesce(?, attempts_remaining), custom_status = prepend_status(custom_status, ?)
WHERE id = ?

-- name: expired_claims
SELECT id, queue_id, attempts_remaining, crashes, extended FROM pinlater_jobs INDEXED BY pinlater_jobs_claims
WHERE state = 1 AND claim_expires_at_ms < ? ORDER BY claim_expires_at_ms LIMIT ?

-- name: expired_claims_of_others
SELECT id, queue_id, attempts_remaining, crashes, extended FROM pinlater_jobs INDEXED BY pinlater_jobs_claims
WHERE state = 1 AND claim_expires_at_ms < ? AND queue_id NOT IN (SELECT value FROM json_each(?))
ORDER BY claim_expires_at_ms LIMIT ?

-- name: expired_claims_of
SELECT queue_id, priority, id, claim_descriptor, claim_expires_at_ms, attempts_allowed, attempts_remaining, crashes,
    extended
FROM pinlater_jobs INDEXED BY pinlater_jobs_claims
WHERE state = 1 AND claim_expires_at_ms < ? AND queue_id IN (SELECT value FROM json_each(?))
ORDER BY claim_expires_at_ms LIMIT ?

-- name: oldest_ended
-- Per queue the first job that succeeded, that failed, that was cancelled: three looks into an index.
SELECT id, name,
    (SELECT finished_at_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_ended_2
        WHERE queue_id = pinlater_queues.id AND state = 2 ORDER BY finished_at_ms LIMIT 1),
    (SELECT finished_at_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_ended_3
        WHERE queue_id = pinlater_queues.id AND state = 3 AND claim_expires_at_ms IS NULL
        ORDER BY finished_at_ms LIMIT 1),
    (SELECT finished_at_ms FROM pinlater_cancelled INDEXED BY pinlater_cancelled_ended
        WHERE queue_id = pinlater_queues.id ORDER BY finished_at_ms LIMIT 1)
FROM pinlater_queues WHERE name IS NOT NULL

-- name: succeeded_before
SELECT id, extended FROM pinlater_jobs INDEXED BY pinlater_jobs_ended_2
WHERE queue_id = ? AND state = 2 AND finished_at_ms < ? ORDER BY finished_at_ms LIMIT ?

-- name: failed_before
SELECT id, extended FROM pinlater_jobs INDEXED BY pinlater_jobs_ended_3
WHERE queue_id = ? AND state = 3 AND claim_expires_at_ms IS NULL AND finished_at_ms < ?
ORDER BY finished_at_ms LIMIT ?

-- name: leftovers
SELECT id, extended, state FROM pinlater_jobs WHERE queue_id = ? LIMIT ?

-- name: remove
DELETE FROM pinlater_jobs NOT INDEXED WHERE id IN (SELECT value FROM json_each(?))

-- name: remove_links
-- MySQL does this in the same statement.
DELETE FROM pinlater_links WHERE job_id IN (SELECT value FROM json_each(?))

-- name: links
SELECT job_id, origin, origin_attempts, moved_to FROM pinlater_links WHERE job_id IN (SELECT value FROM json_each(?))

-- name: undelivered
SELECT job_id, undelivered, undelivered_attempts, undelivered_run_after_ms FROM pinlater_links
WHERE undelivered IS NOT NULL AND job_id IN (SELECT value FROM json_each(?))

-- name: clear_moved_to
UPDATE pinlater_links SET moved_to = NULL WHERE job_id IN (SELECT value FROM json_each(?))

-- name: queues_with_dead_letters_pending
SELECT id, name FROM pinlater_queues
WHERE name IN (SELECT value FROM json_each(?)) AND EXISTS (SELECT 1
    FROM pinlater_jobs INDEXED BY pinlater_jobs_marked
    WHERE queue_id = pinlater_queues.id AND state = 3 AND claim_expires_at_ms IS NOT NULL)

-- name: dead_letters_pending
SELECT id, priority, attempts_allowed, crashes, created_at_ms, body_bytes, extended
FROM pinlater_jobs INDEXED BY pinlater_jobs_marked
WHERE queue_id = ? AND state = 3 AND claim_expires_at_ms IS NOT NULL ORDER BY id LIMIT ?

-- name: clear_dead_letter_pending
UPDATE pinlater_jobs NOT INDEXED SET claim_expires_at_ms = NULL, updated_at_ms = ?
WHERE id IN (SELECT value FROM json_each(?))

-- name: touch_quota
INSERT OR IGNORE INTO pinlater_shares (queue_id, share, version) VALUES (?, 0, 0)

-- name: locked_quota
SELECT share, version FROM pinlater_shares WHERE queue_id = ?

-- name: in_progress_up_to
SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = ? AND state = 1 LIMIT ?)

-- name: touch_kv_entry
INSERT OR IGNORE INTO pinlater_notes (kind, name, version, expires_at_ms, body) VALUES (?, ?, 0, 0, x'')

-- name: kv_entry
SELECT version, expires_at_ms FROM pinlater_notes WHERE kind = ? AND name = ?

-- name: expired_kv_entries
SELECT name FROM pinlater_notes INDEXED BY pinlater_notes_expiry
WHERE kind = ? AND expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?

-- name: excess_kv_entries
SELECT name FROM pinlater_notes INDEXED BY pinlater_notes_expiry
WHERE kind = ? ORDER BY expires_at_ms DESC LIMIT ? OFFSET ?

-- name: remove_kv_entries
DELETE FROM pinlater_notes WHERE kind = ? AND name IN (SELECT value FROM json_each(?))

-- name: bucket
SELECT tokens, at_ms FROM pinlater_buckets WHERE queue = ?

-- name: touch_bucket
INSERT OR IGNORE INTO pinlater_buckets (queue, tokens, at_ms) VALUES (?, 1.0, ?)

-- name: stats_all
SELECT state, priority, state = 0 AND run_after_ms > ? AS is_scheduled, COUNT(*), MIN(run_after_ms)
FROM (SELECT state, priority, run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = ? ORDER BY state, priority, run_after_ms, id LIMIT ?)
GROUP BY state, priority, is_scheduled

-- name: stats_between
SELECT ?, COUNT(*), MIN(run_after_ms) FROM (SELECT run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms >= ? AND run_after_ms <= ?
    ORDER BY run_after_ms, id LIMIT ?)

-- name: stats_at
SELECT ?, COUNT(*), MIN(run_after_ms) FROM (SELECT run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
    WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms = ? AND id > ? ORDER BY id LIMIT ?)

-- name: stats_place_between
SELECT run_after_ms, id FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms >= ? AND run_after_ms <= ?
ORDER BY run_after_ms, id LIMIT 1 OFFSET ?

-- name: stats_place_at
SELECT run_after_ms, id FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms = ? AND id > ? ORDER BY id LIMIT 1 OFFSET ?

-- name: named
SELECT id, priority, state, extended FROM pinlater_jobs NOT INDEXED
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND id IN (SELECT value FROM json_each(?))

-- name: infos
SELECT {info}
FROM pinlater_jobs NOT INDEXED LEFT JOIN pinlater_links ON job_id = id
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND id IN (SELECT value FROM json_each(?))

-- name: trails
SELECT {trail}
FROM pinlater_jobs NOT INDEXED LEFT JOIN pinlater_links ON job_id = id
WHERE id IN (SELECT value FROM json_each(?))

-- name: logs
SELECT job_id, attempts, log_lines FROM pinlater_links WHERE job_id IN (SELECT value FROM json_each(?))

-- name: trails_of
SELECT {trail}, priority, log_lines
FROM pinlater_jobs NOT INDEXED LEFT JOIN pinlater_links ON job_id = id
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND id IN (SELECT value FROM json_each(?))

-- name: count_between
SELECT COUNT(*) FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms >= ? AND run_after_ms <= ?

-- name: scan_at
SELECT id FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms = ? AND id > ? ORDER BY id LIMIT ?

-- name: scan_time
SELECT run_after_ms FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms >= ? AND run_after_ms <= ?
ORDER BY run_after_ms DESC LIMIT 1 OFFSET ?

-- name: scan_between
SELECT run_after_ms, id FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? AND run_after_ms >= ? AND run_after_ms <= ?

-- name: oldest
SELECT id, extended FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = ? AND priority = ? ORDER BY run_after_ms, id LIMIT ?

-- name: retry_failed
UPDATE pinlater_jobs NOT INDEXED SET state = 0, attempts_remaining = coalesce(?, attempts_allowed),
    run_after_ms = ?, updated_at_ms = ?, crashes = 0, {no_claim},
    finished_at_ms = NULL
WHERE id IN (SELECT value FROM json_each(?))

-- name: insert_extended_jobs_row
{new_extended_job_row}

-- name: extensions
SELECT {extension} FROM pinlater_jobs job NOT INDEXED LEFT JOIN pinlater_extensions extension ON extension.job_id = job.id
WHERE job.id IN (SELECT value FROM json_each(?))

-- name: remove_extensions
DELETE FROM pinlater_extensions WHERE job_id IN (SELECT value FROM json_each(?))

-- name: remove_tags
DELETE FROM pinlater_tags INDEXED BY pinlater_tags_of_job WHERE job_id IN (SELECT value FROM json_each(?))

-- name: tagged
-- CROSS JOIN: the entries of the tag in their order, and then the job of each.
SELECT tagged.job_id, job.state, job.priority, job.run_after_ms
FROM pinlater_tags tagged CROSS JOIN pinlater_jobs job ON job.id = tagged.job_id
WHERE tagged.queue_id = ? AND tagged.tag = ? AND tagged.job_id < ? ORDER BY tagged.job_id DESC LIMIT ?

-- name: remove_expiries
DELETE FROM pinlater_expiries WHERE job_id IN (SELECT value FROM json_each(?))

-- name: remove_cancelled
DELETE FROM pinlater_cancelled WHERE job_id IN (SELECT value FROM json_each(?))

-- name: set_extended
UPDATE pinlater_jobs NOT INDEXED SET extended = ? WHERE id IN (SELECT value FROM json_each(?))

-- name: forget_stop
UPDATE pinlater_extensions SET cancelled_by = NULL WHERE job_id IN (SELECT value FROM json_each(?))

-- name: end_cancelled
UPDATE pinlater_jobs NOT INDEXED SET state = 5, attempts_remaining = 0, finished_at_ms = ?,
    updated_at_ms = ?, claim_expires_at_ms = ?, crashes = crashes + ?, custom_status = append_status(custom_status, ?, ?)
WHERE id IN (SELECT value FROM json_each(?))

-- name: mark_replayed
UPDATE pinlater_jobs NOT INDEXED SET state = 6, updated_at_ms = ? WHERE id IN (SELECT value FROM json_each(?))

-- name: note_cancelled
INSERT INTO pinlater_cancelled (job_id, queue_id, finished_at_ms)
SELECT id, queue_id, finished_at_ms FROM pinlater_jobs NOT INDEXED WHERE id IN (SELECT value FROM json_each(?))

-- name: cancelled_before
SELECT job.id, job.extended FROM pinlater_cancelled ended INDEXED BY pinlater_cancelled_ended CROSS JOIN pinlater_jobs job ON job.id = ended.job_id
WHERE ended.queue_id = ? AND ended.finished_at_ms < ? ORDER BY ended.finished_at_ms LIMIT ?

-- name: renew_claims
UPDATE pinlater_jobs NOT INDEXED SET
    claim_expires_at_ms = max(? + claim_timeout_ms,
        CASE WHEN max(updated_at_ms, claimed_at_ms) BETWEEN ? AND ? THEN claim_expires_at_ms + 1 ELSE 0 END),
    updated_at_ms = CASE WHEN max(updated_at_ms, claimed_at_ms) BETWEEN ? AND ? THEN max(updated_at_ms, claimed_at_ms) + 1 ELSE ? END
WHERE id IN (SELECT value FROM json_each(?))

-- name: reschedulable
SELECT id, priority, state, updated_at_ms, extended FROM pinlater_jobs NOT INDEXED
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND id IN (SELECT value FROM json_each(?))

-- name: reschedule
UPDATE pinlater_jobs NOT INDEXED SET run_after_ms = COALESCE(?, run_after_ms),
    attempts_allowed = COALESCE(?, attempts_allowed), attempts_remaining = COALESCE(?, attempts_remaining),
    updated_at_ms = ?
WHERE id IN (SELECT value FROM json_each(?))

-- name: queue_id_by_homes
-- The version of the homes stays what it is until the commit, and so does the queue.
SELECT queue.id, (SELECT version FROM pinlater_records WHERE name = '@homes') FROM pinlater_queues queue WHERE queue.name = ?

-- name: end_keys
-- A send id goes when its time has passed, a dedupe key not while it names a job that is kept.
UPDATE pinlater_keys SET
    until_ms = CASE WHEN window_ms < 0 THEN {forever} ELSE ? + window_ms END,
    remove_at_ms = CASE WHEN is_send_id = 1 THEN ? + window_ms END
WHERE queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: revive_send_ids
-- Of jobs that are retried, behind `forget_send_ids`.
UPDATE pinlater_keys SET until_ms = NULL, remove_at_ms = NULL
WHERE is_send_id = 1 AND outcome = 0 AND queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: forget_send_ids
DELETE FROM pinlater_keys WHERE is_send_id = 1 AND until_ms <= ? AND queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: drop_keys
DELETE FROM pinlater_keys WHERE is_send_id = 0 AND queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: drop_keys_over
-- Of jobs that go: those without a window that goes on.
DELETE FROM pinlater_keys
WHERE is_send_id = 0 AND (CASE WHEN until_ms IS NULL THEN window_ms <= 0 ELSE until_ms <= ? OR until_ms >= {forever} END) = 1
    AND queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: leave_windows
UPDATE pinlater_keys SET remove_at_ms = COALESCE(until_ms, ? + window_ms),
    until_ms = COALESCE(until_ms, ? + window_ms)
WHERE queue_id = ? AND name IN (/*keys*/) AND job_id IN (SELECT value FROM json_each(?))

-- name: keys_over
SELECT queue_id, name FROM pinlater_keys INDEXED BY pinlater_keys_over
WHERE remove_at_ms <= ? ORDER BY remove_at_ms LIMIT ?

-- name: chain_heads
SELECT chain.serialize_key, queue.name, chain.priority, chain.job_id
FROM pinlater_chains chain CROSS JOIN pinlater_queues queue ON queue.id = chain.queue_id
WHERE chain.serialize_key IN (/*keys*/) AND chain.behind = '' AND queue.name IS NOT NULL

-- name: chains_of_queue
-- Those that hold up others.
SELECT chain.job_id, chain.serialize_key FROM pinlater_blocked blocked INDEXED BY pinlater_blocked_queue CROSS JOIN pinlater_chains chain
    ON chain.serialize_key = blocked.serialize_key
WHERE blocked.queue_id = ? LIMIT ?

-- name: remove_waiting
DELETE FROM pinlater_waiting WHERE serialize_key IN (/*keys*/) AND place IN (SELECT value FROM json_each(?))

-- name: next_in_chains
SELECT blocked.serialize_key, waiting.place, waiting.job_id, job.queue_id, job.priority, job.run_after_ms
FROM pinlater_blocked blocked
CROSS JOIN pinlater_waiting waiting ON waiting.serialize_key = blocked.serialize_key AND waiting.place =
    (SELECT MIN(first.place) FROM pinlater_waiting first WHERE first.serialize_key = blocked.serialize_key)
CROSS JOIN pinlater_jobs job ON job.id = waiting.job_id
WHERE blocked.serialize_key IN (/*keys*/)

-- name: free_waiting
UPDATE pinlater_jobs NOT INDEXED SET state = 0 WHERE id IN (SELECT value FROM json_each(?))

-- name: most_blocked
SELECT serialize_key, waiting, since_ms FROM pinlater_blocked INDEXED BY pinlater_blocked_waiting ORDER BY waiting DESC LIMIT ?

-- name: longest_blocked
SELECT serialize_key, waiting, since_ms FROM pinlater_blocked INDEXED BY pinlater_blocked_since ORDER BY since_ms LIMIT ?

-- name: expired_jobs
SELECT job.id, job.queue_id, job.attempts_remaining, job.extended, expiry.expires_at_ms, job.state
FROM pinlater_expiries expiry INDEXED BY pinlater_expiries_due CROSS JOIN pinlater_jobs job ON job.id = expiry.job_id
WHERE expiry.expires_at_ms <= ? AND job.state IN (0, 4, 8) ORDER BY expiry.expires_at_ms LIMIT ?

-- name: expired_ready
-- How many of those that look ready have expired, and are left out.
SELECT job.priority, COUNT(*) FROM pinlater_expiries expiry INDEXED BY pinlater_expiries_due
    CROSS JOIN pinlater_jobs job ON job.id = expiry.job_id
WHERE expiry.expires_at_ms <= ? AND job.queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND job.state IN (0, 8)
    AND job.run_after_ms <= ? GROUP BY job.priority

-- name: results
SELECT job_id, priority, attempts_remaining, finished_at_ms, result_bytes FROM pinlater_results
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND job_id IN (SELECT value FROM json_each(?))

-- name: result_bodies
SELECT job_id, result, result_bytes FROM pinlater_results WHERE job_id IN (SELECT value FROM json_each(?))

-- name: results_over
SELECT job_id, result_bytes FROM pinlater_results INDEXED BY pinlater_results_expiry
WHERE expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?

-- name: remove_results
DELETE FROM pinlater_results WHERE job_id IN (SELECT value FROM json_each(?))

-- name: put_firings
INSERT INTO pinlater_firings (schedule, mark) VALUES /*rows*/ ON CONFLICT (schedule) DO UPDATE SET mark = max(mark, excluded.mark)

-- name: run_afters
SELECT id, queue_id, run_after_ms FROM pinlater_jobs NOT INDEXED WHERE id IN (SELECT value FROM json_each(?))

-- name: states
SELECT id, priority, state, extended FROM pinlater_jobs NOT INDEXED WHERE id IN (SELECT value FROM json_each(?))

-- name: status
SELECT custom_status FROM pinlater_jobs NOT INDEXED WHERE id = ?

-- name: append_status
UPDATE pinlater_jobs NOT INDEXED SET custom_status = append_status(custom_status, ?, ?) WHERE id = ?

-- name: hold_back
UPDATE pinlater_jobs NOT INDEXED SET state = 4 WHERE id IN (SELECT value FROM json_each(?))

-- name: leftovers_of
SELECT id, extended, state FROM pinlater_jobs NOT INDEXED WHERE queue_id = ? AND id IN (SELECT value FROM json_each(?))

-- name: keys_of_queue
SELECT name FROM pinlater_keys WHERE queue_id = ? LIMIT ?

-- name: waiting_of_queue
SELECT waiting.job_id FROM pinlater_waiting waiting
    CROSS JOIN pinlater_jobs job ON job.id = waiting.job_id
WHERE job.queue_id = ? AND waiting.serialize_key IN (/*keys*/) LIMIT ?

-- name: release_references
DELETE FROM pinlater_held WHERE kind = ? AND job_id IN (SELECT value FROM json_each(?)) RETURNING reference

-- name: held_references
SELECT job_id, reference FROM pinlater_held WHERE kind = ? AND job_id IN (SELECT value FROM json_each(?))

-- name: shared_references
SELECT reference, others FROM pinlater_shared WHERE reference IN (/*keys*/)

-- name: drop_references
INSERT OR IGNORE INTO pinlater_dropped (reference, spot) VALUES /*rows*/

-- name: dropped_from
SELECT reference FROM pinlater_dropped INDEXED BY pinlater_dropped_spots WHERE spot >= ? ORDER BY spot LIMIT ?

-- name: dropped_before
SELECT reference FROM pinlater_dropped INDEXED BY pinlater_dropped_spots WHERE spot < ? ORDER BY spot LIMIT ?

-- name: schema_version
-- Until the commit nobody lowers it.
SELECT value FROM pinlater_meta WHERE name = 'schema_version'

-- name: schema_version_for_change
SELECT value FROM pinlater_meta WHERE name = 'schema_version'

-- name: virtual_times
SELECT priority, turn FROM pinlater_virtual_times WHERE queue_id = ? AND priority IN (SELECT value FROM json_each(?))

-- name: times_for_claim
-- The same, with whether groups are held back there, and whether any job of these priorities is to come into line.
SELECT priority, turn, EXISTS (SELECT 1 FROM pinlater_turns held
        WHERE held.queue_id = times.queue_id AND held.priority = times.priority AND held.waits > 1),
    EXISTS (SELECT 1 FROM pinlater_jobs INDEXED BY pinlater_jobs_order
        WHERE queue_id = ? AND state = 0 AND priority IN (SELECT value FROM json_each(?)) AND run_after_ms <= ?)
FROM pinlater_virtual_times times WHERE queue_id = ? AND priority IN (SELECT value FROM json_each(?))

-- name: due_jobs
SELECT id, run_after_ms, job_keys FROM pinlater_jobs INDEXED BY pinlater_jobs_order
WHERE queue_id = ? AND state = 0 AND priority = ? AND run_after_ms <= ? ORDER BY run_after_ms, id LIMIT ?

-- name: into_line
UPDATE pinlater_jobs NOT INDEXED SET state = 8 WHERE id IN (SELECT value FROM json_each(?))

-- name: candidates_in_line
SELECT {candidate} FROM pinlater_jobs NOT INDEXED WHERE state = 8 AND id IN (SELECT value FROM json_each(?))

-- name: claim_in_line
SELECT {candidate} FROM pinlater_jobs NOT INDEXED WHERE state = 8 AND id IN (SELECT value FROM json_each(?))

-- name: lines
SELECT job_id, queue_id, priority, grp FROM pinlater_lines WHERE job_id IN (SELECT value FROM json_each(?))

-- name: remove_lines
DELETE FROM pinlater_lines WHERE job_id IN (SELECT value FROM json_each(?))

-- name: lock_permits
SELECT grp FROM pinlater_permit_groups WHERE queue_id = ? AND grp = ?
