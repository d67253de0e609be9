-- The statements of a shard on MySQL 8 or MariaDB, beside those of common.sql. Same names as in sqlite.sql; a comment
-- where they have to differ.
--
-- All run at READ COMMITTED, so that rows that do not match are not kept locked. FOR UPDATE locks what is looked at
-- before it is changed, named jobs in the order of their ids; transactions that take whatever is there skip what others hold.
-- FORCE INDEX: on a small table the planner would rather read, and lock, every row.
-- Text is utf8mb4_bin: other collations hold "a" and "A" for equal. No statement compares text but names of queues,
-- which are letters, digits, underscores and dashes; claim descriptors are compared under the lock, by Python, exactly.

-- name: schema
CREATE TABLE IF NOT EXISTS pinlater_meta (
    name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_queues (
    id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL UNIQUE,
    created_at_ms BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_sequence (
    id INT NOT NULL PRIMARY KEY,
    next_id BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_jobs (
    id BIGINT NOT NULL PRIMARY KEY,
    queue_id INT UNSIGNED NOT NULL,
    state TINYINT NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    run_after_ms BIGINT NOT NULL,
    attempts_allowed INT NOT NULL,
    attempts_remaining INT NOT NULL,
    crashes INT NOT NULL DEFAULT 0,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    claimed_at_ms BIGINT NULL,
    claim_timeout_ms BIGINT NULL,
    claim_expires_at_ms BIGINT NULL,
    finished_at_ms BIGINT NULL,
    claim_descriptor MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    custom_status TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    body_bytes INT UNSIGNED NOT NULL,
    extended TINYINT NULL,
    job_keys VARBINARY(1000) NULL,
    body LONGBLOB NOT NULL,
    KEY pinlater_jobs_order (queue_id, state, priority, run_after_ms, id),
    -- All that is due, in one index, since every index costs at every change of state. There are no partial ones: of
    -- claims the first column counts, over the whole shard; of what has ended that is NULL, and the others count, per
    -- queue, since each has its own time to live. A failed job that waits to become a dead letter has a claim expiry, later than
    -- any: `retry` and `remove` take the mark with it.
    KEY pinlater_jobs_ends (claim_expires_at_ms, queue_id, state, finished_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO pinlater_sequence (id, next_id) VALUES (1, 1000000000000000);
CREATE TABLE IF NOT EXISTS pinlater_counters (
    name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO pinlater_counters (name, value) VALUES ('revision', 0);
CREATE TABLE IF NOT EXISTS pinlater_records (
    name VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    version VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    deleted_version VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    revision BIGINT NOT NULL,
    text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    UNIQUE KEY pinlater_records_revision (revision),
    KEY pinlater_records_deleted (deleted_version)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_shares (
    queue_id INT UNSIGNED NOT NULL PRIMARY KEY,
    share INT NOT NULL,
    version BIGINT NOT NULL
) ENGINE = InnoDB;
-- What few jobs have. Where copies came from and went to; origin_attempts is what the origin of a dead letter was allowed.
-- How often in a row nobody received the job, and its attempts and run_after meanwhile (`add_columns` in older tables).
-- The trail of a job: the record of its attempts before the last (packed_trails.py), and its log lines. They lie here,
-- where any version of a server removes them with the job.
CREATE TABLE IF NOT EXISTS pinlater_links (
    job_id BIGINT NOT NULL PRIMARY KEY,
    origin VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    origin_attempts INT NULL,
    moved_to VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    undelivered INT NULL,
    undelivered_attempts INT NULL,
    undelivered_run_after_ms BIGINT NULL,
    attempts BLOB NULL,
    log_lines BLOB NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_notes (
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    version BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    body LONGBLOB NOT NULL,
    PRIMARY KEY (kind, name),
    KEY pinlater_notes_expiry (kind, expires_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_buckets (
    queue VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    tokens DOUBLE NOT NULL,
    at_ms BIGINT NOT NULL
) ENGINE = InnoDB;
-- What extended jobs have, apart from the jobs; `extended` of a job says what of it (see records.py), NULL: nothing.
-- Its keys are in `job_keys` (see HeldKeys): most that have keys have nothing else.
CREATE TABLE IF NOT EXISTS pinlater_extensions (
    job_id BIGINT NOT NULL PRIMARY KEY,
    claim_timeout_ms BIGINT NULL,
    expires_at_ms BIGINT NULL,
    cancelled_by MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    fraction DOUBLE NULL,
    progress TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    progress_at_ms BIGINT NULL,
    tags VARBINARY(1000) NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- The jobs of each tag.
CREATE TABLE IF NOT EXISTS pinlater_tags (
    queue_id INT UNSIGNED NOT NULL,
    tag VARBINARY(64) NOT NULL,
    job_id BIGINT NOT NULL,
    PRIMARY KEY (queue_id, tag, job_id),
    KEY pinlater_tags_of_job (job_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Dedupe keys and send ids. until_ms: NULL while the job is live, then when the entry counts no more; remove_at_ms: when
-- `prune` removes it; elsewhere: the descriptor of a job of another shard.
CREATE TABLE IF NOT EXISTS pinlater_keys (
    queue_id INT UNSIGNED NOT NULL,
    name VARBINARY(600) NOT NULL,
    job_id BIGINT NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    slot INT NOT NULL,
    window_ms BIGINT NOT NULL,
    is_send_id TINYINT NOT NULL,
    outcome TINYINT NOT NULL,
    until_ms BIGINT NULL,
    remove_at_ms BIGINT NULL,
    elsewhere VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    PRIMARY KEY (queue_id, name),
    KEY pinlater_keys_over (remove_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Serialize keys with a live job: the first of them. `behind`: a shard id; all wait until the barrier is lifted.
CREATE TABLE IF NOT EXISTS pinlater_chains (
    serialize_key VARBINARY(255) NOT NULL PRIMARY KEY,
    job_id BIGINT NOT NULL,
    place BIGINT NOT NULL,
    queue_id INT UNSIGNED NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    slot INT NOT NULL,
    since_ms BIGINT NOT NULL,
    behind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_waiting (
    serialize_key VARBINARY(255) NOT NULL,
    place BIGINT NOT NULL,
    job_id BIGINT NOT NULL,
    PRIMARY KEY (serialize_key, place)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Of the keys behind whose first job others wait: how many, since when it is the first, and its queue.
CREATE TABLE IF NOT EXISTS pinlater_blocked (
    serialize_key VARBINARY(255) NOT NULL PRIMARY KEY,
    waiting BIGINT NOT NULL,
    since_ms BIGINT NOT NULL,
    queue_id INT UNSIGNED NOT NULL,
    KEY pinlater_blocked_waiting (waiting),
    KEY pinlater_blocked_since (since_ms),
    KEY pinlater_blocked_queue (queue_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_barriers (
    serialize_key VARBINARY(255) NOT NULL PRIMARY KEY,
    shard_id VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_expiries (
    job_id BIGINT NOT NULL PRIMARY KEY,
    expires_at_ms BIGINT NOT NULL,
    KEY pinlater_expiries_due (expires_at_ms)
) ENGINE = InnoDB;
-- What has ended as CANCELLED, or was REPLAYED since. Apart, as in SQLite.
CREATE TABLE IF NOT EXISTS pinlater_cancelled (
    job_id BIGINT NOT NULL PRIMARY KEY,
    queue_id INT UNSIGNED NOT NULL,
    finished_at_ms BIGINT NOT NULL,
    KEY pinlater_cancelled_ended (queue_id, finished_at_ms)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS pinlater_results (
    job_id BIGINT NOT NULL PRIMARY KEY,
    queue_id INT UNSIGNED NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    attempts_remaining INT NOT NULL,
    finished_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    result_bytes INT UNSIGNED NOT NULL,
    result LONGBLOB NOT NULL,
    KEY pinlater_results_expiry (expires_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_firings (
    schedule VARBINARY(600) NOT NULL PRIMARY KEY,
    mark VARBINARY(64) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- References to bodies (held_references.py): of a job's body (kind 0) or result (1); how many further jobs share one; and
-- those that no job has any more. `spot` is by chance, so that each of these comes up in its turn.
CREATE TABLE IF NOT EXISTS pinlater_held (
    job_id BIGINT NOT NULL,
    kind TINYINT UNSIGNED NOT NULL,
    reference VARBINARY(255) NOT NULL,
    PRIMARY KEY (job_id, kind)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_shared (
    reference VARBINARY(255) NOT NULL PRIMARY KEY,
    others INT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_dropped (
    reference VARBINARY(255) NOT NULL PRIMARY KEY,
    spot INT UNSIGNED NOT NULL,
    KEY pinlater_dropped_spots (spot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Groups (group_lines.py), as in SQLite.
CREATE TABLE IF NOT EXISTS pinlater_lines (
    job_id BIGINT NOT NULL PRIMARY KEY,
    queue_id INT UNSIGNED NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    grp VARBINARY(255) NOT NULL,
    run_after_ms BIGINT NOT NULL,
    KEY pinlater_lines_order (queue_id, priority, grp, run_after_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_turns (
    queue_id INT UNSIGNED NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    grp VARBINARY(255) NOT NULL,
    turn DOUBLE NOT NULL,
    waits BIGINT NOT NULL,
    PRIMARY KEY (queue_id, priority, grp),
    KEY pinlater_turns_order (queue_id, priority, waits, turn, grp)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_virtual_times (
    queue_id INT UNSIGNED NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    turn DOUBLE NOT NULL,
    PRIMARY KEY (queue_id, priority)
) ENGINE = InnoDB;
-- Permits of groups (group_permits.py), as in SQLite.
CREATE TABLE IF NOT EXISTS pinlater_permits (
    queue_id INT UNSIGNED NOT NULL,
    holder VARBINARY(255) NOT NULL,
    grp VARBINARY(255) NOT NULL,
    priority TINYINT UNSIGNED NOT NULL,
    claim_descriptor MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    check_at_ms BIGINT NOT NULL,
    PRIMARY KEY (queue_id, holder),
    KEY pinlater_permits_of_group (queue_id, grp),
    KEY pinlater_permits_due (queue_id, check_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_permit_groups (
    queue_id INT UNSIGNED NOT NULL,
    grp VARBINARY(255) NOT NULL,
    tokens DOUBLE NOT NULL,
    at_ms BIGINT NOT NULL,
    full_at_ms BIGINT NOT NULL,
    waiting BLOB NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (queue_id, grp),
    KEY pinlater_permit_groups_past (queue_id, until_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS pinlater_rooms (
    queue_id INT UNSIGNED NOT NULL,
    grp VARBINARY(255) NOT NULL,
    jobs INT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (queue_id, grp),
    KEY pinlater_rooms_past (queue_id, until_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- name: has_old_index
SELECT COUNT(*) FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = 'pinlater_jobs' AND index_name = 'pinlater_jobs_due'

-- name: upgrade
-- From version 1. One statement, so both or neither; jobs go on coming and going meanwhile.
ALTER TABLE pinlater_jobs ADD KEY pinlater_jobs_ends (claim_expires_at_ms, queue_id, state, finished_at_ms),
    DROP KEY pinlater_jobs_due

-- name: tables
SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()

-- name: lacks_columns
-- Servers before these columns go on using the tables that have them: the version of the tables stays.
SELECT COALESCE(SUM(table_name = 'pinlater_links' AND column_name = 'undelivered'), 0) = 0,
    COALESCE(SUM(table_name = 'pinlater_jobs' AND column_name = 'extended'), 0) = 0,
    COALESCE(SUM(table_name = 'pinlater_links' AND column_name = 'log_lines'), 0) = 0,
    COALESCE(SUM(table_name = 'pinlater_dropped' AND column_name = 'spot'), 0) = 0,
    COALESCE(SUM(table_name = 'pinlater_extensions' AND column_name = 'tags'), 0) = 0
FROM information_schema.columns
WHERE table_schema = DATABASE()
    AND table_name IN ('pinlater_links', 'pinlater_jobs', 'pinlater_dropped', 'pinlater_extensions')

-- name: add_columns
ALTER TABLE pinlater_links ADD COLUMN undelivered INT NULL, ADD COLUMN undelivered_attempts INT NULL,
    ADD COLUMN undelivered_run_after_ms BIGINT NULL

-- name: add_trails
ALTER TABLE pinlater_links ADD COLUMN attempts BLOB NULL, ADD COLUMN log_lines BLOB NULL, ALGORITHM = INSTANT

-- name: add_extended
-- The description of the table alone changes: jobs go on coming and going.
ALTER TABLE pinlater_jobs ADD COLUMN extended TINYINT NULL, ADD COLUMN job_keys VARBINARY(1000) NULL, ALGORITHM = INSTANT

-- name: add_tags
ALTER TABLE pinlater_extensions ADD COLUMN tags VARBINARY(1000) NULL, ALGORITHM = INSTANT

-- name: lock_tables
-- Making tables commits what came before it; this lock does not mind, and goes with the connection.
SELECT GET_LOCK(CONCAT('pinlater.', SHA1(DATABASE())), %s)

-- name: unlock_tables
SELECT RELEASE_LOCK(CONCAT('pinlater.', SHA1(DATABASE())))

-- name: has_meta
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'pinlater_meta'

-- name: insert_meta
INSERT IGNORE INTO pinlater_meta (name, value) VALUES (%s, %s)

-- name: ping
SELECT
    (SELECT value FROM pinlater_meta WHERE name = 'shard_id'),
    (SELECT value FROM pinlater_meta WHERE name = 'store_id'),
    CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED),
    @@GLOBAL.read_only,
    (SELECT next_id FROM pinlater_sequence WHERE id = 1)

-- name: create_queue
INSERT IGNORE INTO pinlater_queues (name, created_at_ms) VALUES (%s, %s)

-- name: allocate_revisions
-- As allocate_ids. A transaction that takes some keeps others waiting until the commit, so revisions are seen in their order.
UPDATE pinlater_counters SET value = LAST_INSERT_ID(value) + %s WHERE name = 'revision'

-- name: versions_of_config_entries
SELECT name, version FROM pinlater_records FORCE INDEX (PRIMARY) WHERE name IN %s

-- name: put_config_entry
INSERT INTO pinlater_records (name, version, deleted_version, revision, text) VALUES (%s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE version = VALUES(version), deleted_version = VALUES(deleted_version),
    revision = VALUES(revision), text = VALUES(text)

-- name: config_entries
SELECT name, version, text, deleted_version, revision FROM pinlater_records FORCE INDEX (pinlater_records_revision)
WHERE revision > %s ORDER BY revision LIMIT %s

-- name: tombstones
SELECT name FROM pinlater_records FORCE INDEX (pinlater_records_deleted)
WHERE deleted_version > '' AND deleted_version < %s AND version = deleted_version LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove_config_entries
DELETE record FROM pinlater_records record FORCE INDEX (PRIMARY) WHERE record.name IN %s

-- name: queue_id_for_enqueue
-- Shared by all who enqueue; a deletion of the queue waits for them, so that no job comes in behind its back.
SELECT id FROM pinlater_queues WHERE name = %s LOCK IN SHARE MODE

-- name: queue_id_if_eligible
-- Before a transaction is begun: an empty queue costs this one look. NULL: its jobs have no groups; nothing eligible.
SELECT queue.id, {group_rules_version},
    (SELECT 1 FROM pinlater_jobs job FORCE INDEX (pinlater_jobs_order)
    WHERE job.queue_id = queue.id AND job.state = 0 AND job.priority IN %s AND job.run_after_ms <= %s LIMIT 1)
FROM pinlater_queues queue WHERE queue.name = %s

-- name: names_of_queues
SELECT id, name FROM pinlater_queues WHERE id IN %s

-- name: ids_of_queues
SELECT id, name FROM pinlater_queues WHERE name IN %s

-- name: allocate_ids
-- There is no RETURNING; LAST_INSERT_ID(x) comes back with the answer. It is the first of the ids, hence the "+" behind.
UPDATE pinlater_sequence SET next_id = LAST_INSERT_ID(GREATEST(next_id, %s)) + %s WHERE id = 1

-- name: insert_jobs_row
{new_job_row}

-- name: ready_in_priority
SELECT %s, COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s)
        AND state = 0 AND priority = %s AND run_after_ms <= %s LIMIT %s) AS eligible

-- name: in_line_in_priority
-- With how many groups wait for turns, and 1 where some are held back.
SELECT %s, (SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_turns
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND priority = %s AND waits = 1 LIMIT %s) AS waiting),
    (SELECT 1 FROM pinlater_turns
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND priority = %s AND waits > 1 LIMIT 1),
    COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND state = 8 AND priority = %s LIMIT %s) AS eligible

-- name: next_due_in_priority
SELECT queue.name, (SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = queue.id AND state = 0 AND priority = %s ORDER BY run_after_ms LIMIT 1), (SELECT 1 FROM pinlater_virtual_times turns WHERE turns.queue_id = queue.id LIMIT 1)
FROM pinlater_queues queue WHERE queue.name IN %s

-- name: next_in_line_in_priority
SELECT queue.name, (SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = queue.id AND state = 8 AND priority = %s ORDER BY run_after_ms LIMIT 1)
FROM pinlater_queues queue WHERE queue.name IN %s

-- name: candidates
-- All priorities at once: the index is read in its own order, one stretch per priority, and reading ends at the limit.
SELECT {candidate}
FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = 0 AND priority IN %s AND run_after_ms <= %s
ORDER BY priority, run_after_ms, id LIMIT %s

-- name: oldest_ready
-- Those whose time is over are passed over.
SELECT run_after_ms, id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms <= %s
    AND NOT EXISTS (SELECT 1 FROM pinlater_expiries WHERE job_id = id AND expires_at_ms <= %s)
ORDER BY run_after_ms, id LIMIT %s

-- name: listed
SELECT {candidate}, state
FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = %s AND id IN %s
ORDER BY id FOR UPDATE

-- name: lock_and_skip
FOR UPDATE SKIP LOCKED

-- name: claim
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 1, claim_descriptor = %s, claimed_at_ms = %s,
    claim_timeout_ms = %s, claim_expires_at_ms = %s, updated_at_ms = %s
WHERE id IN %s

-- name: claim_several
-- The same for several claims of one time-out: a round trip for each would cost more than looking through the cases.
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 1, claim_descriptor = ELT(FIELD(id, /*ids*/), /*claims*/),
    claimed_at_ms = %s, claim_timeout_ms = %s, claim_expires_at_ms = %s, updated_at_ms = %s
WHERE id IN %s

-- name: bodies
SELECT id, body, extended FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s

-- name: in_progress
SELECT {in_progress}
FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND state = 1 AND id IN %s
ORDER BY id FOR UPDATE

-- name: last_seen
-- While a job is in progress, only its claim and its checkpoints update it.
SELECT {in_progress}, updated_at_ms
FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND state = 1 AND id IN %s
ORDER BY id FOR UPDATE

-- name: when_claimed
SELECT {in_progress}, claim_expires_at_ms, run_after_ms
FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND state = 1 AND id IN %s
ORDER BY id FOR UPDATE

-- name: succeed
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 2, finished_at_ms = %s, updated_at_ms = %s,
    claim_expires_at_ms = NULL
WHERE id IN %s

-- name: succeed_with_status
-- LEFT counts characters; with utf8mb4 each is one, of up to four bytes
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 2, finished_at_ms = %s, updated_at_ms = %s,
    claim_expires_at_ms = NULL, custom_status = CONCAT(INSERT(custom_status, %s, 5000, '…\n'), %s)
WHERE id IN %s

-- name: fail
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 3, attempts_remaining = 0, finished_at_ms = %s,
    updated_at_ms = %s, claim_expires_at_ms = %s, crashes = crashes + %s,
    custom_status = CONCAT(INSERT(custom_status, %s, 5000, '…\n'), %s)
WHERE id IN %s

-- name: retry
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, attempts_remaining = attempts_remaining - 1,
    run_after_ms = %s, updated_at_ms = %s, {no_claim}, crashes = crashes + %s, custom_status = CONCAT(INSERT(custom_status, %s, 5000, '…\n'), %s)
WHERE id IN %s

-- name: requeue
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, updated_at_ms = %s, {no_claim}
WHERE id IN %s

-- name: heartbeat
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET
    claim_expires_at_ms = GREATEST(%s + claim_timeout_ms, LEAST(COALESCE(%s, run_after_ms) + claim_timeout_ms, %s),
        CASE WHEN GREATEST(updated_at_ms, claimed_at_ms) BETWEEN %s AND %s THEN claim_expires_at_ms + 1 ELSE 0 END),
    updated_at_ms = CASE WHEN GREATEST(updated_at_ms, claimed_at_ms) BETWEEN %s AND %s THEN GREATEST(updated_at_ms, claimed_at_ms) + 1 ELSE %s END,
    run_after_ms = COALESCE(%s, run_after_ms)
WHERE id IN %s

-- name: checkpoint
UPDATE pinlater_jobs SET attempts_allowed = COALESCE(%s, attempts_allowed),
    attempts_remaining = COALESCE(%s, attempts_remaining), custom_status = LEFT(CONCAT(%s, custom_status), 5000)
WHERE id = %s

-- name: expired_claims
SELECT id, queue_id, attempts_remaining, crashes, extended FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE state = 1 AND claim_expires_at_ms < %s ORDER BY claim_expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: expired_claims_of_others
SELECT id, queue_id, attempts_remaining, crashes, extended FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE state = 1 AND claim_expires_at_ms < %s AND queue_id NOT IN %s
ORDER BY claim_expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: expired_claims_of
SELECT queue_id, priority, id, claim_descriptor, claim_expires_at_ms, attempts_allowed, attempts_remaining, crashes,
    extended
FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE state = 1 AND claim_expires_at_ms < %s AND queue_id IN %s ORDER BY claim_expires_at_ms LIMIT %s

-- name: oldest_ended
-- Per queue the first job that succeeded, that failed, that was cancelled: three looks into an index.
SELECT id, name,
    (SELECT finished_at_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
        WHERE claim_expires_at_ms IS NULL AND queue_id = pinlater_queues.id AND state = 2
        ORDER BY finished_at_ms LIMIT 1),
    (SELECT finished_at_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
        WHERE claim_expires_at_ms IS NULL AND queue_id = pinlater_queues.id AND state = 3
        ORDER BY finished_at_ms LIMIT 1),
    (SELECT finished_at_ms FROM pinlater_cancelled FORCE INDEX (pinlater_cancelled_ended)
        WHERE queue_id = pinlater_queues.id ORDER BY finished_at_ms LIMIT 1)
FROM pinlater_queues WHERE name IS NOT NULL

-- name: succeeded_before
SELECT id, extended FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms IS NULL AND queue_id = %s AND state = 2 AND finished_at_ms < %s
ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: failed_before
SELECT id, extended FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms IS NULL AND queue_id = %s AND state = 3 AND finished_at_ms < %s
ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: leftovers
SELECT id, extended, state FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order) WHERE queue_id = %s LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove
-- With a table after DELETE: only so does it take an index hint, and a second table.
DELETE job, link FROM pinlater_jobs job FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links link ON link.job_id = job.id
WHERE job.id IN %s

-- name: links
SELECT job_id, origin, origin_attempts, moved_to FROM pinlater_links FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: put_moved_to
INSERT INTO pinlater_links (job_id, moved_to) VALUES (%s, %s) ON DUPLICATE KEY UPDATE moved_to = VALUES(moved_to)

-- name: undelivered
SELECT job_id, undelivered, undelivered_attempts, undelivered_run_after_ms FROM pinlater_links FORCE INDEX (PRIMARY)
WHERE undelivered IS NOT NULL AND job_id IN %s

-- name: put_undelivered
INSERT INTO pinlater_links (job_id, undelivered, undelivered_attempts, undelivered_run_after_ms)
VALUES (%s, %s, %s, %s) ON DUPLICATE KEY UPDATE undelivered = VALUES(undelivered),
    undelivered_attempts = VALUES(undelivered_attempts), undelivered_run_after_ms = VALUES(undelivered_run_after_ms)

-- name: clear_moved_to
UPDATE pinlater_links FORCE INDEX (PRIMARY) SET moved_to = NULL WHERE job_id IN %s

-- name: queues_with_dead_letters_pending
SELECT id, name FROM pinlater_queues
WHERE name IN %s AND EXISTS (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
    WHERE claim_expires_at_ms = {dead_letter_pending_ms} AND queue_id = pinlater_queues.id AND state = 3)

-- name: dead_letters_pending
SELECT id, priority, attempts_allowed, crashes, created_at_ms, body_bytes, extended
FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms = {dead_letter_pending_ms} AND queue_id = %s AND state = 3
ORDER BY finished_at_ms, id LIMIT %s FOR UPDATE SKIP LOCKED

-- name: clear_dead_letter_pending
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET claim_expires_at_ms = NULL, updated_at_ms = %s WHERE id IN %s

-- name: touch_quota
-- Not IGNORE: that would leave two with a shared lock, each waiting for the other's.
INSERT INTO pinlater_shares (queue_id, share, version) VALUES (%s, 0, 0) ON DUPLICATE KEY UPDATE share = share

-- name: in_progress_up_to
SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = %s AND state = 1 LIMIT %s) AS claims

-- name: touch_kv_entry
INSERT INTO pinlater_notes (kind, name, version, expires_at_ms, body) VALUES (%s, %s, 0, 0, '')
ON DUPLICATE KEY UPDATE version = version

-- name: expired_kv_entries
SELECT name FROM pinlater_notes FORCE INDEX (pinlater_notes_expiry)
WHERE kind = %s AND expires_at_ms <= %s ORDER BY expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: excess_kv_entries
SELECT name FROM pinlater_notes FORCE INDEX (pinlater_notes_expiry)
WHERE kind = %s ORDER BY expires_at_ms DESC LIMIT %s OFFSET %s

-- name: remove_kv_entries
DELETE note FROM pinlater_notes note FORCE INDEX (PRIMARY) WHERE note.kind = %s AND note.name IN %s

-- name: touch_bucket
INSERT INTO pinlater_buckets (queue, tokens, at_ms) VALUES (%s, 1.0, %s) ON DUPLICATE KEY UPDATE tokens = tokens

-- name: stats_all
SELECT state, priority, state = 0 AND run_after_ms > %s AS is_scheduled, COUNT(*), MIN(run_after_ms)
FROM (SELECT state, priority, run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = %s ORDER BY state, priority, run_after_ms, id LIMIT %s) AS jobs
GROUP BY state, priority, is_scheduled

-- name: stats_between
SELECT %s, COUNT(*), MIN(run_after_ms) FROM (SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms >= %s AND run_after_ms <= %s
    ORDER BY run_after_ms, id LIMIT %s) AS piece

-- name: stats_at
SELECT %s, COUNT(*), MIN(run_after_ms) FROM (SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms = %s AND id > %s ORDER BY id LIMIT %s) AS piece

-- name: stats_place_between
SELECT run_after_ms, id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms >= %s AND run_after_ms <= %s
ORDER BY run_after_ms, id LIMIT 1 OFFSET %s

-- name: stats_place_at
SELECT run_after_ms, id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms = %s AND id > %s ORDER BY id LIMIT 1 OFFSET %s

-- name: named
SELECT id, priority, state, extended FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s ORDER BY id FOR UPDATE

-- name: infos
SELECT {info}
FROM pinlater_jobs FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links ON job_id = id
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s

-- name: trails
SELECT {trail}
FROM pinlater_jobs FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links ON job_id = id
WHERE id IN %s

-- name: logs
SELECT job_id, attempts, log_lines FROM pinlater_links FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: trails_of
SELECT {trail}, priority, log_lines
FROM pinlater_jobs FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links ON job_id = id
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s

-- name: put_attempts
INSERT INTO pinlater_links (job_id, attempts) VALUES /*rows*/ ON DUPLICATE KEY UPDATE attempts = VALUES(attempts)

-- name: put_log_lines
INSERT INTO pinlater_links (job_id, log_lines) VALUES /*rows*/ ON DUPLICATE KEY UPDATE log_lines = VALUES(log_lines)

-- name: snapshot
-- For the next transaction alone: READ COMMITTED looks anew in each statement.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: count_between
SELECT COUNT(*) FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms >= %s AND run_after_ms <= %s

-- name: scan_at
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms = %s AND id > %s ORDER BY id LIMIT %s

-- name: scan_time
SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms >= %s AND run_after_ms <= %s
ORDER BY run_after_ms DESC LIMIT 1 OFFSET %s

-- name: scan_between
SELECT run_after_ms, id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s AND run_after_ms >= %s AND run_after_ms <= %s

-- name: oldest
SELECT id, extended FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s ORDER BY run_after_ms, id LIMIT %s FOR UPDATE SKIP LOCKED

-- name: retry_failed
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, attempts_remaining = COALESCE(%s, attempts_allowed),
    run_after_ms = %s, updated_at_ms = %s, crashes = 0, {no_claim}, finished_at_ms = NULL
WHERE id IN %s

-- name: insert_extended_jobs_row
{new_extended_job_row}

-- name: extensions
SELECT {extension} FROM pinlater_jobs job FORCE INDEX (PRIMARY) LEFT JOIN pinlater_extensions extension ON extension.job_id = job.id
WHERE job.id IN %s

-- name: remove_extensions
DELETE target FROM pinlater_extensions target FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: put_job_tags
INSERT INTO pinlater_extensions (job_id, tags) VALUES /*rows*/ ON DUPLICATE KEY UPDATE tags = VALUES(tags)

-- name: remove_tags
DELETE target FROM pinlater_tags target FORCE INDEX (pinlater_tags_of_job) WHERE job_id IN %s

-- name: tagged
SELECT tagged.job_id, job.state, job.priority, job.run_after_ms
FROM pinlater_tags tagged FORCE INDEX (PRIMARY) STRAIGHT_JOIN pinlater_jobs job FORCE INDEX (PRIMARY) ON job.id = tagged.job_id
WHERE tagged.queue_id = %s AND tagged.tag = %s AND tagged.job_id < %s ORDER BY tagged.job_id DESC LIMIT %s

-- name: put_expiries
INSERT INTO pinlater_expiries (job_id, expires_at_ms) VALUES /*rows*/ ON DUPLICATE KEY UPDATE expires_at_ms = VALUES(expires_at_ms)

-- name: remove_expiries
DELETE target FROM pinlater_expiries target FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: remove_cancelled
DELETE target FROM pinlater_cancelled target FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: set_extended
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET extended = %s WHERE id IN %s

-- name: stop
-- What was asked to stop first stays so.
INSERT INTO pinlater_extensions (job_id, cancelled_by) VALUES /*rows*/
ON DUPLICATE KEY UPDATE cancelled_by = VALUES(cancelled_by)

-- name: put_progress
INSERT INTO pinlater_extensions (job_id, fraction, progress, progress_at_ms) VALUES /*rows*/
ON DUPLICATE KEY UPDATE fraction = VALUES(fraction), progress = VALUES(progress), progress_at_ms = VALUES(progress_at_ms)

-- name: forget_stop
UPDATE pinlater_extensions FORCE INDEX (PRIMARY) SET cancelled_by = NULL WHERE job_id IN %s

-- name: set_job_keys
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET job_keys = %s WHERE id = %s

-- name: end_cancelled
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 5, attempts_remaining = 0, finished_at_ms = %s,
    updated_at_ms = %s, claim_expires_at_ms = %s, crashes = crashes + %s, custom_status = CONCAT(INSERT(custom_status, %s, 5000, '…\n'), %s)
WHERE id IN %s

-- name: mark_replayed
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 6, updated_at_ms = %s WHERE id IN %s

-- name: note_cancelled
INSERT INTO pinlater_cancelled (job_id, queue_id, finished_at_ms)
SELECT id, queue_id, finished_at_ms FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s

-- name: cancelled_before
SELECT job.id, job.extended FROM pinlater_cancelled ended FORCE INDEX (pinlater_cancelled_ended) STRAIGHT_JOIN pinlater_jobs job ON job.id = ended.job_id
WHERE ended.queue_id = %s AND ended.finished_at_ms < %s ORDER BY ended.finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: renew_claims
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET
    claim_expires_at_ms = GREATEST(%s + claim_timeout_ms,
        CASE WHEN GREATEST(updated_at_ms, claimed_at_ms) BETWEEN %s AND %s THEN claim_expires_at_ms + 1 ELSE 0 END),
    updated_at_ms = CASE WHEN GREATEST(updated_at_ms, claimed_at_ms) BETWEEN %s AND %s THEN GREATEST(updated_at_ms, claimed_at_ms) + 1 ELSE %s END
WHERE id IN %s

-- name: reschedulable
SELECT id, priority, state, updated_at_ms, extended FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s ORDER BY id FOR UPDATE

-- name: reschedule
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET run_after_ms = COALESCE(%s, run_after_ms),
    attempts_allowed = COALESCE(%s, attempts_allowed), attempts_remaining = COALESCE(%s, attempts_remaining),
    updated_at_ms = %s
WHERE id IN %s

-- name: queue_id_by_homes
-- The version of the homes stays what it is until the commit, and so does the queue.
-- The counter is what `put_config` locks first, so that there is something to wait for where there is no entry yet.
SELECT queue.id, entry.version
FROM pinlater_counters counter STRAIGHT_JOIN pinlater_queues queue ON queue.name = %s
    LEFT JOIN pinlater_records entry ON entry.name = '@homes'
WHERE counter.name = 'revision' LOCK IN SHARE MODE

-- name: keys
-- Nothing is written at the end of a job whose key has no window: until_ms NULL counts as long as the job is live.
SELECT entry.name, entry.job_id, entry.priority, entry.slot,
    CASE WHEN entry.until_ms IS NULL AND COALESCE(job.state, 2) NOT IN (0, 1, 4, 8) THEN 0 ELSE entry.until_ms END,
    entry.outcome, entry.elsewhere
FROM pinlater_keys entry FORCE INDEX (PRIMARY) LEFT JOIN pinlater_jobs job ON job.id = entry.job_id
WHERE entry.queue_id = %s AND entry.name IN (/*keys*/)

-- name: put_keys
INSERT INTO pinlater_keys ({key_entry}) VALUES /*rows*/
ON DUPLICATE KEY UPDATE job_id = VALUES(job_id), priority = VALUES(priority), slot = VALUES(slot), window_ms = VALUES(window_ms),
    outcome = VALUES(outcome), until_ms = VALUES(until_ms), remove_at_ms = VALUES(remove_at_ms), elsewhere = VALUES(elsewhere)

-- name: put_live_keys
INSERT INTO pinlater_keys ({live_key_entry}) VALUES /*rows*/
ON DUPLICATE KEY UPDATE job_id = VALUES(job_id), priority = VALUES(priority), slot = VALUES(slot), window_ms = VALUES(window_ms),
    outcome = VALUES(outcome), until_ms = VALUES(until_ms), remove_at_ms = VALUES(remove_at_ms), elsewhere = VALUES(elsewhere)

-- name: add_live_keys
-- How many of them are new; nothing is changed of the others.
INSERT IGNORE INTO pinlater_keys ({live_key_entry}) VALUES /*rows*/

-- name: untake_keys
-- What `add_live_keys` of this transaction has added, whose ids nobody else has.
DELETE target FROM pinlater_keys target FORCE INDEX (PRIMARY) WHERE queue_id = %s AND name IN (/*keys*/) AND job_id >= %s

-- name: end_keys
-- A send id goes when its time has passed, a dedupe key not while it names a job that is kept.
UPDATE pinlater_keys FORCE INDEX (PRIMARY) SET
    until_ms = CASE WHEN window_ms < 0 THEN {forever} ELSE %s + window_ms END,
    remove_at_ms = CASE WHEN is_send_id = 1 THEN %s + window_ms END
WHERE queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: revive_send_ids
-- Of jobs that are retried, behind `forget_send_ids`.
UPDATE pinlater_keys FORCE INDEX (PRIMARY) SET until_ms = NULL, remove_at_ms = NULL
WHERE is_send_id = 1 AND outcome = 0 AND queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: forget_send_ids
DELETE target FROM pinlater_keys target FORCE INDEX (PRIMARY)
WHERE is_send_id = 1 AND until_ms <= %s AND queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: drop_keys
DELETE target FROM pinlater_keys target FORCE INDEX (PRIMARY) WHERE is_send_id = 0 AND queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: drop_keys_over
-- Of jobs that go: those without a window that goes on.
DELETE target FROM pinlater_keys target FORCE INDEX (PRIMARY)
WHERE is_send_id = 0 AND (CASE WHEN until_ms IS NULL THEN window_ms <= 0 ELSE until_ms <= %s OR until_ms >= {forever} END) = 1
    AND queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: leave_windows
UPDATE pinlater_keys FORCE INDEX (PRIMARY) SET remove_at_ms = COALESCE(until_ms, %s + window_ms),
    until_ms = COALESCE(until_ms, %s + window_ms)
WHERE queue_id = %s AND name IN (/*keys*/) AND job_id IN %s

-- name: keys_over
SELECT queue_id, name FROM pinlater_keys FORCE INDEX (pinlater_keys_over)
WHERE remove_at_ms <= %s ORDER BY remove_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove_keys
DELETE target FROM pinlater_keys target FORCE INDEX (PRIMARY) WHERE queue_id = %s AND name IN (/*keys*/)

-- name: windows
SELECT queue_id, name, job_id, priority, slot, until_ms, is_send_id, outcome, elsewhere FROM pinlater_keys FORCE INDEX (PRIMARY)
WHERE (queue_id > %s OR (queue_id = %s AND name > %s)) AND until_ms > %s AND until_ms < {forever}
ORDER BY queue_id, name LIMIT %s

-- name: chains
SELECT chain.serialize_key, chain.job_id, chain.place, chain.queue_id, chain.since_ms, chain.behind, blocked.waiting
FROM pinlater_chains chain FORCE INDEX (PRIMARY) LEFT JOIN pinlater_blocked blocked ON blocked.serialize_key = chain.serialize_key
WHERE chain.serialize_key IN (/*keys*/) ORDER BY chain.serialize_key FOR UPDATE

-- name: live_chains
SELECT serialize_key FROM pinlater_chains FORCE INDEX (PRIMARY) WHERE serialize_key IN (/*keys*/)

-- name: chain_heads
SELECT chain.serialize_key, queue.name, chain.priority, chain.job_id
FROM pinlater_chains chain FORCE INDEX (PRIMARY) STRAIGHT_JOIN pinlater_queues queue ON queue.id = chain.queue_id
WHERE chain.serialize_key IN (/*keys*/) AND chain.behind = '' AND queue.name IS NOT NULL

-- name: put_chains
INSERT INTO pinlater_chains (serialize_key, job_id, place, queue_id, priority, slot, since_ms, behind) VALUES /*rows*/
ON DUPLICATE KEY UPDATE job_id = VALUES(job_id), place = VALUES(place), queue_id = VALUES(queue_id), priority = VALUES(priority),
    since_ms = VALUES(since_ms)

-- name: add_chains
-- How many of them are new, as `add_live_keys`.
INSERT IGNORE INTO pinlater_chains (serialize_key, job_id, place, queue_id, priority, slot, since_ms, behind) VALUES /*rows*/

-- name: untake_chains
DELETE target FROM (/*key_rows*/) named STRAIGHT_JOIN pinlater_chains target ON target.serialize_key = named.k WHERE target.job_id >= %s

-- name: remove_chains
-- By a join: a DELETE of several keys of a small table would read it whole, and wait for rows that others hold.
DELETE target FROM (/*key_rows*/) named STRAIGHT_JOIN pinlater_chains target ON target.serialize_key = named.k

-- name: chains_of_queue
-- Those that hold up others.
SELECT chain.job_id, chain.serialize_key FROM pinlater_blocked blocked FORCE INDEX (pinlater_blocked_queue) STRAIGHT_JOIN pinlater_chains chain
    ON chain.serialize_key = blocked.serialize_key
WHERE blocked.queue_id = %s LIMIT %s

-- name: remove_waiting
DELETE target FROM (/*key_rows*/) named STRAIGHT_JOIN pinlater_waiting target ON target.serialize_key = named.k
WHERE target.place IN %s

-- name: add_blocked
INSERT INTO pinlater_blocked (serialize_key, waiting, since_ms, queue_id) VALUES /*rows*/
ON DUPLICATE KEY UPDATE waiting = pinlater_blocked.waiting + VALUES(waiting), since_ms = VALUES(since_ms),
    queue_id = VALUES(queue_id)

-- name: drop_unblocked
DELETE target FROM (/*key_rows*/) named STRAIGHT_JOIN pinlater_blocked target ON target.serialize_key = named.k
WHERE target.waiting <= 0

-- name: next_in_chains
SELECT blocked.serialize_key, waiting.place, waiting.job_id, job.queue_id, job.priority, job.run_after_ms
FROM pinlater_blocked blocked FORCE INDEX (PRIMARY)
STRAIGHT_JOIN pinlater_waiting waiting FORCE INDEX (PRIMARY) ON waiting.serialize_key = blocked.serialize_key AND waiting.place =
    (SELECT MIN(first.place) FROM pinlater_waiting first WHERE first.serialize_key = blocked.serialize_key)
STRAIGHT_JOIN pinlater_jobs job ON job.id = waiting.job_id
WHERE blocked.serialize_key IN (/*keys*/)

-- name: free_waiting
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0 WHERE id IN %s

-- name: most_blocked
SELECT serialize_key, waiting, since_ms FROM pinlater_blocked FORCE INDEX (pinlater_blocked_waiting) ORDER BY waiting DESC LIMIT %s

-- name: longest_blocked
SELECT serialize_key, waiting, since_ms FROM pinlater_blocked FORCE INDEX (pinlater_blocked_since) ORDER BY since_ms LIMIT %s

-- name: put_barriers
INSERT INTO pinlater_barriers (serialize_key, shard_id) VALUES /*rows*/ ON DUPLICATE KEY UPDATE shard_id = VALUES(shard_id)

-- name: remove_barriers
DELETE target FROM pinlater_barriers target FORCE INDEX (PRIMARY) WHERE serialize_key IN (/*keys*/)

-- name: open_chains
UPDATE pinlater_chains FORCE INDEX (PRIMARY) SET behind = '', since_ms = %s WHERE serialize_key IN (/*keys*/)

-- name: expired_jobs
SELECT job.id, job.queue_id, job.attempts_remaining, job.extended, expiry.expires_at_ms, job.state
FROM pinlater_expiries expiry FORCE INDEX (pinlater_expiries_due) STRAIGHT_JOIN pinlater_jobs job ON job.id = expiry.job_id
WHERE expiry.expires_at_ms <= %s AND job.state IN (0, 4, 8) ORDER BY expiry.expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: expired_ready
-- How many of those that look ready have expired, and are left out.
SELECT job.priority, COUNT(*) FROM pinlater_expiries expiry FORCE INDEX (pinlater_expiries_due)
    STRAIGHT_JOIN pinlater_jobs job ON job.id = expiry.job_id
WHERE expiry.expires_at_ms <= %s AND job.queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND job.state IN (0, 8)
    AND job.run_after_ms <= %s GROUP BY job.priority

-- name: put_results
INSERT INTO pinlater_results (job_id, queue_id, priority, attempts_remaining, finished_at_ms, expires_at_ms, result_bytes, result)
VALUES /*rows*/ ON DUPLICATE KEY UPDATE finished_at_ms = VALUES(finished_at_ms), expires_at_ms = VALUES(expires_at_ms),
    result_bytes = VALUES(result_bytes), result = VALUES(result)

-- name: results
SELECT job_id, priority, attempts_remaining, finished_at_ms, result_bytes FROM pinlater_results FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND job_id IN %s

-- name: result_bodies
SELECT job_id, result, result_bytes FROM pinlater_results FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: results_over
SELECT job_id, result_bytes FROM pinlater_results FORCE INDEX (pinlater_results_expiry)
WHERE expires_at_ms <= %s ORDER BY expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove_results
DELETE target FROM pinlater_results target FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: firings
SELECT schedule, mark FROM pinlater_firings FORCE INDEX (PRIMARY) WHERE schedule IN (/*keys*/)

-- name: put_firings
INSERT INTO pinlater_firings (schedule, mark) VALUES /*rows*/ ON DUPLICATE KEY UPDATE mark = GREATEST(mark, VALUES(mark))

-- name: remove_firings
DELETE firing FROM pinlater_firings firing FORCE INDEX (PRIMARY) WHERE firing.schedule IN (/*keys*/)

-- name: run_afters
SELECT id, queue_id, run_after_ms FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s FOR UPDATE

-- name: states
SELECT id, priority, state, extended FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s ORDER BY id FOR UPDATE

-- name: status
SELECT custom_status FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id = %s

-- name: append_status
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET custom_status = CONCAT(INSERT(custom_status, %s, 5000, '…\n'), %s) WHERE id = %s

-- name: hold_back
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 4 WHERE id IN %s

-- name: leftovers_of
SELECT id, extended, state FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE queue_id = %s AND id IN %s FOR UPDATE SKIP LOCKED

-- name: keys_of_queue
SELECT name FROM pinlater_keys FORCE INDEX (PRIMARY) WHERE queue_id = %s LIMIT %s FOR UPDATE SKIP LOCKED

-- name: waiting_of_queue
SELECT waiting.job_id FROM pinlater_waiting waiting FORCE INDEX (PRIMARY)
    STRAIGHT_JOIN pinlater_jobs job ON job.id = waiting.job_id
WHERE job.queue_id = %s AND waiting.serialize_key IN (/*keys*/) LIMIT %s

-- name: release_references
DELETE FROM pinlater_held WHERE kind = %s AND job_id IN %s RETURNING reference

-- name: held_references
SELECT job_id, reference FROM pinlater_held FORCE INDEX (PRIMARY) WHERE kind = %s AND job_id IN %s

-- name: shared_references
SELECT reference, others FROM pinlater_shared FORCE INDEX (PRIMARY) WHERE reference IN (/*keys*/) FOR UPDATE

-- name: put_shared_references
INSERT INTO pinlater_shared (reference, others) VALUES /*rows*/ ON DUPLICATE KEY UPDATE others = VALUES(others)

-- name: drop_references
INSERT IGNORE INTO pinlater_dropped (reference, spot) VALUES /*rows*/

-- name: dropped_from
SELECT reference FROM pinlater_dropped FORCE INDEX (pinlater_dropped_spots) WHERE spot >= %s ORDER BY spot LIMIT %s

-- name: dropped_before
SELECT reference FROM pinlater_dropped FORCE INDEX (pinlater_dropped_spots) WHERE spot < %s ORDER BY spot LIMIT %s

-- name: all_held_references
SELECT job_id, kind, reference FROM pinlater_held FORCE INDEX (PRIMARY)
WHERE job_id >= %s AND (job_id > %s OR kind > %s) ORDER BY job_id, kind LIMIT %s

-- name: all_dropped_references
SELECT reference FROM pinlater_dropped FORCE INDEX (PRIMARY) WHERE reference > %s ORDER BY reference LIMIT %s

-- name: schema_version
-- Until the commit nobody lowers it.
SELECT value FROM pinlater_meta WHERE name = 'schema_version' LOCK IN SHARE MODE

-- name: export_jobs
-- The numbers that all jobs have are one text: drivers in Python take long over each value.
SELECT CONCAT_WS(' ', {exported_numbers}), {exported_rest} FROM pinlater_jobs WHERE id > %s AND id <= %s ORDER BY id

-- name: put_virtual_times
INSERT IGNORE INTO pinlater_virtual_times (queue_id, priority, turn) VALUES /*rows*/

-- name: put_turns
INSERT INTO pinlater_turns (queue_id, priority, grp, turn, waits) VALUES /*rows*/
ON DUPLICATE KEY UPDATE turn = VALUES(turn), waits = VALUES(waits)

-- name: await_turns
-- In this order: the second one sees the first.
INSERT INTO pinlater_turns (queue_id, priority, grp, turn, waits) VALUES /*rows*/
ON DUPLICATE KEY UPDATE turn = IF(waits = 0, GREATEST(turn, VALUES(turn)), turn), waits = IF(waits = 0, 1, waits)

-- name: virtual_times
SELECT priority, turn FROM pinlater_virtual_times WHERE queue_id = %s AND priority IN %s ORDER BY priority FOR UPDATE

-- name: times_for_claim
-- The last of the index: for a range beside columns of the outer row all turns of the priority would be read.
SELECT priority, turn, COALESCE((SELECT held.waits FROM pinlater_turns held FORCE INDEX (pinlater_turns_order)
        WHERE held.queue_id = times.queue_id AND held.priority = times.priority
        ORDER BY held.waits DESC LIMIT 1), 0) > 1,
    EXISTS (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
        WHERE queue_id = %s AND state = 0 AND priority IN %s AND run_after_ms <= %s)
FROM pinlater_virtual_times times WHERE queue_id = %s AND priority IN %s ORDER BY priority FOR UPDATE

-- name: due_jobs
SELECT id, run_after_ms, job_keys FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = 0 AND priority = %s AND run_after_ms <= %s ORDER BY run_after_ms, id LIMIT %s
FOR UPDATE SKIP LOCKED

-- name: into_line
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 8 WHERE id IN %s

-- name: candidates_in_line
SELECT {candidate} FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s AND state = 8

-- name: claim_in_line
SELECT {candidate} FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s AND state = 8 ORDER BY id FOR UPDATE SKIP LOCKED

-- name: lines
SELECT job_id, queue_id, priority, grp FROM pinlater_lines WHERE job_id IN %s

-- name: ids_in_line
SELECT %s, GROUP_CONCAT(job_id ORDER BY run_after_ms, job_id SEPARATOR ' ') FROM (SELECT run_after_ms, job_id FROM pinlater_lines
    WHERE queue_id = %s AND priority = %s AND grp = %s ORDER BY run_after_ms, job_id LIMIT %s) AS line

-- name: remove_lines
DELETE FROM pinlater_lines WHERE job_id IN %s

-- name: put_permits
INSERT INTO pinlater_permits (queue_id, holder, grp, priority, claim_descriptor, check_at_ms) VALUES /*rows*/
ON DUPLICATE KEY UPDATE grp = VALUES(grp), priority = VALUES(priority), claim_descriptor = VALUES(claim_descriptor),
    check_at_ms = VALUES(check_at_ms)

-- name: put_permit_groups
INSERT INTO pinlater_permit_groups (queue_id, grp, tokens, at_ms, full_at_ms, waiting, until_ms) VALUES /*rows*/
ON DUPLICATE KEY UPDATE tokens = VALUES(tokens), at_ms = VALUES(at_ms), full_at_ms = VALUES(full_at_ms), waiting = VALUES(waiting),
    until_ms = VALUES(until_ms)

-- name: put_rooms
INSERT INTO pinlater_rooms (queue_id, grp, jobs, until_ms) VALUES /*rows*/
ON DUPLICATE KEY UPDATE jobs = VALUES(jobs), until_ms = VALUES(until_ms)
