-- The statements of a shard on MySQL 8 or MariaDB. Same names as in sqlite.sql; a comment where they have to differ.
--
-- All run at READ COMMITTED, so that rows that do not match are not kept locked. FOR UPDATE locks what a step looks at
-- before it changes it, named jobs in the order of their ids; steps that take whatever is there skip what others hold.
-- FORCE INDEX: on a small table the planner would rather read, and lock, every row.
-- Text is utf8mb4_bin: other collations hold "a" and "A" for equal. No statement compares text but names of queues,
-- which are letters, digits and underscores; claim descriptors are compared under the lock, by Python, exactly.

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
    -- What is due, over the whole shard, in one index, since every index costs at every change of state. There are no
    -- partial ones: for claims the second column counts; for what has ended that is NULL, and the third one counts.
    KEY pinlater_jobs_due (state, claim_expires_at_ms, finished_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO pinlater_sequence (id, next_id) VALUES (1, 1000000000000000);

-- name: has_meta
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'pinlater_meta'

-- name: meta
SELECT name, value FROM pinlater_meta

-- name: insert_meta
INSERT IGNORE INTO pinlater_meta (name, value) VALUES (%s, %s)

-- name: ping
SELECT
    (SELECT value FROM pinlater_meta WHERE name = 'shard_id'),
    (SELECT value FROM pinlater_meta WHERE name = 'store_id'),
    CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED),
    @@GLOBAL.read_only

-- name: create_queue
INSERT IGNORE INTO pinlater_queues (name, created_at_ms) VALUES (%s, %s)

-- name: delete_queue
UPDATE pinlater_queues SET name = NULL WHERE name = %s

-- name: queue_names
SELECT name FROM pinlater_queues WHERE name IS NOT NULL

-- name: queue_id
SELECT id FROM pinlater_queues WHERE name = %s

-- name: queue_id_for_enqueue
-- Shared by all who enqueue; whoever deletes the queue waits for them, so that no job comes in behind its back.
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
INSERT INTO pinlater_jobs (id, queue_id, state, priority, run_after_ms, attempts_allowed, attempts_remaining,
    created_at_ms, updated_at_ms, custom_status, body_bytes, body)
VALUES

-- name: insert_jobs_row
(%s, %s, 0, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: ready
SELECT 0, COUNT(*) FROM pinlater_queues WHERE name = %s

-- name: ready_in_priority
SELECT %s, COUNT(*) FROM (SELECT 1 FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order)
    WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s)
        AND state = 0 AND priority = %s AND run_after_ms <= %s LIMIT %s) AS eligible

-- name: candidates
-- All priorities at once: the index is read in its own order, one stretch per priority, and reading ends at the limit.
SELECT id, priority, run_after_ms, attempts_allowed, attempts_remaining, created_at_ms, body_bytes,
    CASE WHEN body_bytes <= 4096 THEN body END
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
SELECT id, priority, attempts_remaining, crashes, claim_descriptor
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
    claim_expires_at_ms = NULL, custom_status = LEFT(CONCAT(custom_status, %s), 5000)
WHERE id IN %s

-- name: fail
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 3, attempts_remaining = 0, finished_at_ms = %s,
    updated_at_ms = %s, claim_expires_at_ms = NULL, crashes = crashes + %s,
    custom_status = LEFT(CONCAT(custom_status, %s), 5000)
WHERE id IN %s

-- name: retry
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, attempts_remaining = attempts_remaining - 1,
    run_after_ms = %s, updated_at_ms = %s, claim_descriptor = NULL, claimed_at_ms = NULL, claim_timeout_ms = NULL,
    claim_expires_at_ms = NULL, crashes = crashes + %s, custom_status = LEFT(CONCAT(custom_status, %s), 5000)
WHERE id IN %s

-- name: give_back
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, updated_at_ms = %s, claim_descriptor = NULL,
    claimed_at_ms = NULL, claim_timeout_ms = NULL, claim_expires_at_ms = NULL
WHERE id IN %s

-- name: heartbeat
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET claim_expires_at_ms = %s + claim_timeout_ms, updated_at_ms = %s,
    run_after_ms = %s
WHERE id IN %s

-- name: checkpoint
UPDATE pinlater_jobs SET attempts_allowed = COALESCE(%s, attempts_allowed),
    attempts_remaining = COALESCE(%s, attempts_remaining), custom_status = LEFT(CONCAT(%s, custom_status), 5000)
WHERE id = %s

-- name: replace_body
UPDATE pinlater_jobs SET body_bytes = %s, body = %s WHERE id = %s

-- name: lapsed
SELECT id, queue_id, attempts_remaining, crashes FROM pinlater_jobs FORCE INDEX (pinlater_jobs_due)
WHERE state = 1 AND claim_expires_at_ms < %s ORDER BY claim_expires_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: succeeded_before
SELECT finished_at_ms, id, queue_id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_due)
WHERE state = 2 AND claim_expires_at_ms IS NULL AND finished_at_ms < %s ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: failed_before
SELECT finished_at_ms, id, queue_id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_due)
WHERE state = 3 AND claim_expires_at_ms IS NULL AND finished_at_ms < %s ORDER BY finished_at_ms LIMIT %s FOR UPDATE SKIP LOCKED

-- name: deleted_queues
SELECT id FROM pinlater_queues WHERE name IS NULL LIMIT %s

-- name: leftovers
SELECT id FROM pinlater_jobs FORCE INDEX (pinlater_jobs_order) WHERE queue_id = %s LIMIT %s FOR UPDATE SKIP LOCKED

-- name: forget_queue
DELETE FROM pinlater_queues WHERE id = %s AND NOT EXISTS (SELECT 1 FROM pinlater_jobs WHERE queue_id = %s)

-- name: remove
-- With a table after DELETE: only so does it take an index hint.
DELETE job FROM pinlater_jobs job FORCE INDEX (PRIMARY) WHERE job.id IN %s

-- name: named
SELECT id, priority, state FROM pinlater_jobs FORCE INDEX (PRIMARY)
WHERE queue_id = (SELECT id FROM pinlater_queues WHERE name = %s) AND id IN %s ORDER BY id FOR UPDATE

-- name: infos
SELECT id, state, priority, attempts_allowed, attempts_remaining, custom_status, created_at_ms, run_after_ms,
    updated_at_ms, claim_descriptor, claimed_at_ms, claim_expires_at_ms, finished_at_ms, crashes, body_bytes
FROM pinlater_jobs FORCE INDEX (PRIMARY)
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
UPDATE pinlater_jobs FORCE INDEX (PRIMARY) SET state = 0, attempts_remaining = %s, run_after_ms = %s,
    updated_at_ms = %s, crashes = 0, claim_descriptor = NULL, claimed_at_ms = NULL, claim_timeout_ms = NULL,
    claim_expires_at_ms = NULL, finished_at_ms = NULL
WHERE id IN %s
