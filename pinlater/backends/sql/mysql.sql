-- The statements of a shard on MySQL 8 or MariaDB. Same names as in sqlite.sql; a comment where they have to differ.
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
CREATE TABLE IF NOT EXISTS pinlater_links (
    job_id BIGINT NOT NULL PRIMARY KEY,
    origin VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    origin_attempts INT NULL,
    moved_to VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    undelivered INT NULL,
    undelivered_attempts INT NULL,
    undelivered_run_after_ms BIGINT NULL
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

-- name: has_old_index
SELECT COUNT(*) FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = 'pinlater_jobs' AND index_name = 'pinlater_jobs_due'

-- name: upgrade
-- From version 1. One statement, so both or neither; jobs go on coming and going meanwhile.
ALTER TABLE pinlater_jobs ADD KEY pinlater_jobs_ends (claim_expires_at_ms, queue_id, state, finished_at_ms),
    DROP KEY pinlater_jobs_due

-- name: lacks_columns
-- Servers before these columns go on using the tables that have them: the version of the tables stays.
SELECT COUNT(*) = 0 FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'pinlater_links' AND column_name = 'undelivered'

-- name: add_columns
ALTER TABLE pinlater_links ADD COLUMN undelivered INT NULL, ADD COLUMN undelivered_attempts INT NULL,
    ADD COLUMN undelivered_run_after_ms BIGINT NULL

-- name: lock_tables
-- Making tables commits what came before it; this lock does not mind, and goes with the connection.
SELECT GET_LOCK(CONCAT('pinlater.', SHA1(DATABASE())), %s)

-- name: unlock_tables
SELECT RELEASE_LOCK(CONCAT('pinlater.', SHA1(DATABASE())))

-- name: has_meta
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'pinlater_meta'

-- name: meta
SELECT name, value FROM pinlater_meta

-- name: insert_meta
INSERT IGNORE INTO pinlater_meta (name, value) VALUES (%s, %s)

-- name: set_schema_version
UPDATE pinlater_meta SET value = %s WHERE name = 'schema_version'

-- name: ping
SELECT
    (SELECT value FROM pinlater_meta WHERE name = 'shard_id'),
    (SELECT value FROM pinlater_meta WHERE name = 'store_id'),
    CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED),
    @@GLOBAL.read_only,
    (SELECT next_id FROM pinlater_sequence WHERE id = 1)

-- name: create_queue
INSERT IGNORE INTO pinlater_queues (name, created_at_ms) VALUES (%s, %s)

-- name: delete_queue
UPDATE pinlater_queues SET name = NULL WHERE name = %s

-- name: queues_without_config_entry
SELECT name, created_at_ms FROM pinlater_queues
WHERE name IS NOT NULL AND name NOT IN (SELECT name FROM pinlater_records) ORDER BY id

-- name: allocate_revisions
-- As allocate_ids. A transaction that takes some keeps others waiting until the commit, so revisions are seen in their order.
UPDATE pinlater_counters SET value = LAST_INSERT_ID(value) + %s WHERE name = 'revision'

-- name: versions_of_config_entries
SELECT name, version FROM pinlater_records FORCE INDEX (PRIMARY) WHERE name IN %s

-- name: put_config_entry
INSERT INTO pinlater_records (name, version, deleted_version, revision, text) VALUES (%s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE version = VALUES(version), deleted_version = VALUES(deleted_version),
    revision = VALUES(revision), text = VALUES(text)

-- name: store_id
SELECT value FROM pinlater_meta WHERE name = 'store_id'

-- name: config_entries
SELECT name, version, text, deleted_version, revision FROM pinlater_records FORCE INDEX (pinlater_records_revision)
WHERE revision > %s ORDER BY revision LIMIT %s

-- name: tombstones
SELECT name FROM pinlater_records FORCE INDEX (pinlater_records_deleted)
WHERE deleted_version > '' AND deleted_version < %s AND version = deleted_version LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove_config_entries
DELETE record FROM pinlater_records record FORCE INDEX (PRIMARY) WHERE record.name IN %s

-- name: queue_id
SELECT id FROM pinlater_queues WHERE name = %s

-- name: queue_id_for_enqueue
-- Shared by all who enqueue; a deletion of the queue waits for them, so that no job comes in behind its back.
SELECT id FROM pinlater_queues WHERE name = %s LOCK IN SHARE MODE

-- name: queue_id_if_eligible
-- Before a transaction is begun: an empty queue costs this one look. NULL: nothing eligible.
SELECT queue.id, (SELECT 1 FROM pinlater_jobs job FORCE INDEX (pinlater_jobs_order)
    WHERE job.queue_id = queue.id AND job.state = 0 AND job.priority IN %s AND job.run_after_ms <= %s LIMIT 1)
FROM pinlater_queues queue WHERE queue.name = %s

-- name: names_of_queues
SELECT id, name FROM pinlater_queues WHERE id IN %s

-- name: allocate_ids
-- There is no RETURNING; LAST_INSERT_ID(x) comes back with the answer. It is the first of the ids, hence the "+" behind.
UPDATE pinlater_sequence SET next_id = LAST_INSERT_ID(GREATEST(next_id, %s)) + %s WHERE id = 1

-- name: insert_jobs
INSERT INTO pinlater_jobs ({new_job})
VALUES

-- name: insert_jobs_row
{new_job_row}

-- name: ready
SELECT 0, COUNT(*) FROM pinlater_queues WHERE name = %s

-- name: ready_in_priority
SELECT %s, COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s)
        AND state = 0 AND priority = %s AND run_after_ms <= %s LIMIT %s) AS eligible

-- name: next_due_in_priority
SELECT queue.name, (SELECT run_after_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = queue.id AND state = 0 AND priority = %s ORDER BY run_after_ms LIMIT 1)
FROM pinlater_queues queue WHERE queue.name IN %s

-- name: candidates
-- All priorities at once: the index is read in its own order, one stretch per priority, and reading ends at the limit.
SELECT {candidate}
FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = 0 AND priority IN %s AND run_after_ms <= %s
ORDER BY priority, run_after_ms, id LIMIT %s

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
SELECT id, body FROM pinlater_jobs FORCE INDEX (PRIMARY) WHERE id IN %s

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
    claim_expires_at_ms = GREATEST(%s + claim_timeout_ms, LEAST(COALESCE(%s, run_after_ms) + claim_timeout_ms, %s)),
    updated_at_ms = %s, run_after_ms = COALESCE(%s, run_after_ms)
WHERE id IN %s

-- name: checkpoint
UPDATE pinlater_jobs SET attempts_allowed = COALESCE(%s, attempts_allowed),
    attempts_remaining = COALESCE(%s, attempts_remaining), custom_status = LEFT(CONCAT(%s, custom_status), 5000)
WHERE id = %s

-- name: replace_body
UPDATE pinlater_jobs SET body_bytes = %s, body = %s WHERE id = %s

-- name: expired_claims
SELECT id, queue_id, attempts_remaining, crashes FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE state = 1 AND claim_expires_at_ms < %s ORDER BY claim_expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: oldest_ended
-- Per queue the first job that succeeded and the first that failed: two looks into an index.
SELECT id, name,
    (SELECT finished_at_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
        WHERE claim_expires_at_ms IS NULL AND queue_id = pinlater_queues.id AND state = 2
        ORDER BY finished_at_ms LIMIT 1),
    (SELECT finished_at_ms FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
        WHERE claim_expires_at_ms IS NULL AND queue_id = pinlater_queues.id AND state = 3
        ORDER BY finished_at_ms LIMIT 1)
FROM pinlater_queues WHERE name IS NOT NULL

-- name: succeeded_before
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms IS NULL AND queue_id = %s AND state = 2 AND finished_at_ms < %s
ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: failed_before
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms IS NULL AND queue_id = %s AND state = 3 AND finished_at_ms < %s
ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: deleted_queues
SELECT id FROM pinlater_queues WHERE name IS NULL LIMIT %s

-- name: leftovers
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order) WHERE queue_id = %s LIMIT %s FOR UPDATE SKIP LOCKED

-- name: forget_queue
DELETE FROM pinlater_queues WHERE id = %s AND NOT EXISTS (SELECT 1 FROM pinlater_jobs WHERE queue_id = %s)

-- name: forget_quota
DELETE FROM pinlater_shares WHERE queue_id = %s

-- name: forget_bucket
DELETE FROM pinlater_buckets WHERE queue = %s

-- name: remove
-- With a table after DELETE: only so does it take an index hint, and a second table.
DELETE job, link FROM pinlater_jobs job FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links link ON link.job_id = job.id
WHERE job.id IN %s

-- name: links
SELECT job_id, origin, origin_attempts FROM pinlater_links FORCE INDEX (PRIMARY) WHERE job_id IN %s

-- name: put_origin
INSERT INTO pinlater_links (job_id, origin, origin_attempts) VALUES (%s, %s, %s)

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
SELECT id, priority, attempts_allowed, crashes, created_at_ms, body_bytes
FROM pinlater_jobs FORCE INDEX (pinlater_jobs_ends)
WHERE claim_expires_at_ms = {dead_letter_pending_ms} AND queue_id = %s AND state = 3
ORDER BY finished_at_ms, id LIMIT %s FOR UPDATE SKIP LOCKED

-- name: clear_dead_letter_pending
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET claim_expires_at_ms = NULL, updated_at_ms = %s WHERE id IN %s

-- name: copy_job
INSERT INTO pinlater_jobs ({new_job})
SELECT {copied_job}
FROM pinlater_jobs WHERE id = %s

-- name: touch_quota
-- Not IGNORE: that would leave two with a shared lock, each waiting for the other's.
INSERT INTO pinlater_shares (queue_id, share, version) VALUES (%s, 0, 0) ON DUPLICATE KEY UPDATE share = share

-- name: quota
SELECT share, version FROM pinlater_shares WHERE queue_id = %s

-- name: locked_quota
SELECT share, version FROM pinlater_shares WHERE queue_id = %s FOR UPDATE

-- name: set_quota
UPDATE pinlater_shares SET share = %s, version = %s WHERE queue_id = %s

-- name: in_progress_up_to
SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = %s AND state = 1 LIMIT %s) AS claims

-- name: touch_kv_entry
INSERT INTO pinlater_notes (kind, name, version, expires_at_ms, body) VALUES (%s, %s, 0, 0, '')
ON DUPLICATE KEY UPDATE version = version

-- name: kv_entry
SELECT version, expires_at_ms FROM pinlater_notes WHERE kind = %s AND name = %s FOR UPDATE

-- name: write_kv_entry
UPDATE pinlater_notes SET version = %s, expires_at_ms = %s, body = %s WHERE kind = %s AND name = %s

-- name: kv_entries
SELECT name, body, version, expires_at_ms FROM pinlater_notes WHERE kind = %s AND expires_at_ms > %s

-- name: expired_kv_entries
SELECT name FROM pinlater_notes FORCE INDEX (pinlater_notes_expiry)
WHERE kind = %s AND expires_at_ms <= %s ORDER BY expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: excess_kv_entries
SELECT name FROM pinlater_notes FORCE INDEX (pinlater_notes_expiry)
WHERE kind = %s ORDER BY expires_at_ms DESC LIMIT %s OFFSET %s

-- name: remove_kv_entries
DELETE note FROM pinlater_notes note FORCE INDEX (PRIMARY) WHERE note.kind = %s AND note.name IN %s

-- name: bucket
SELECT tokens, at_ms FROM pinlater_buckets WHERE queue = %s FOR UPDATE

-- name: touch_bucket
INSERT INTO pinlater_buckets (queue, tokens, at_ms) VALUES (%s, 1.0, %s) ON DUPLICATE KEY UPDATE tokens = tokens

-- name: fill_bucket
UPDATE pinlater_buckets SET tokens = %s, at_ms = %s WHERE queue = %s

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
SELECT id, priority, state FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s ORDER BY id FOR UPDATE

-- name: infos
SELECT {info}
FROM pinlater_jobs FORCE INDEX (PRIMARY) LEFT JOIN pinlater_links ON job_id = id
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s

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
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
WHERE queue_id = %s AND state = %s AND priority = %s ORDER BY run_after_ms, id LIMIT %s FOR UPDATE SKIP LOCKED

-- name: retry_failed
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, attempts_remaining = COALESCE(%s, attempts_allowed),
    run_after_ms = %s, updated_at_ms = %s, crashes = 0, {no_claim}, finished_at_ms = NULL
WHERE id IN %s
