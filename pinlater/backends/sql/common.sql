-- The statements that two dialects at least have alike, with ? for each bound value. A dialect that needs another text
-- has it under the same name in its own file.

-- name: meta
SELECT name, value FROM pinlater_meta

-- name: set_schema_version
UPDATE pinlater_meta SET value = ? WHERE name = 'schema_version'

-- name: delete_queue
UPDATE pinlater_queues SET name = NULL WHERE name = ?

-- name: queues_without_config_entry
SELECT name, created_at_ms FROM pinlater_queues
WHERE name IS NOT NULL AND name NOT IN (SELECT name FROM pinlater_records) ORDER BY id

-- name: allocate_revisions
UPDATE pinlater_counters SET value = value + ? WHERE name = 'revision' RETURNING value

-- name: put_config_entry
INSERT INTO pinlater_records (name, version, deleted_version, revision, text) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, deleted_version = excluded.deleted_version,
    revision = excluded.revision, text = excluded.text

-- name: store_id
SELECT value FROM pinlater_meta WHERE name = 'store_id'

-- name: queue_id
SELECT id FROM pinlater_queues WHERE name = ?

-- name: queue_with_groups
-- NULL where its jobs have no groups, and so no virtual times; else the version of the rules for groups, '' for none.
SELECT id, {group_rules_version} FROM pinlater_queues queue WHERE name = ?

-- name: insert_jobs
INSERT INTO pinlater_jobs ({new_job})
VALUES

-- name: ready
-- 1: the queue is there; 2: and its jobs have groups; 3: and there are rules for these.
SELECT 0, (SELECT CASE WHEN {group_rules_version} IS NULL THEN 1 WHEN {group_rules_version} = '' THEN 2 ELSE 3 END
    FROM pinlater_queues queue WHERE queue.name = ?)

-- name: any_expired
SELECT -1, COUNT(*) FROM (SELECT 1 FROM pinlater_expiries WHERE expires_at_ms <= ? LIMIT 1) AS expired

-- name: replace_body
UPDATE pinlater_jobs SET body_bytes = ?, body = ? WHERE id = ?

-- name: deleted_queues
SELECT id FROM pinlater_queues WHERE name IS NULL LIMIT ?

-- name: forget_queue
DELETE FROM pinlater_queues WHERE id = ? AND NOT EXISTS (SELECT 1 FROM pinlater_jobs WHERE queue_id = ?)

-- name: forget_quota
DELETE FROM pinlater_shares WHERE queue_id = ?

-- name: forget_bucket
DELETE FROM pinlater_buckets WHERE queue = ?

-- name: put_origin
INSERT INTO pinlater_links (job_id, origin, origin_attempts) VALUES (?, ?, ?)

-- name: put_moved_to
INSERT INTO pinlater_links (job_id, moved_to) VALUES (?, ?)
ON CONFLICT (job_id) DO UPDATE SET moved_to = excluded.moved_to

-- name: put_undelivered
INSERT INTO pinlater_links (job_id, undelivered, undelivered_attempts, undelivered_run_after_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET undelivered = excluded.undelivered,
    undelivered_attempts = excluded.undelivered_attempts, undelivered_run_after_ms = excluded.undelivered_run_after_ms

-- name: put_attempts
INSERT INTO pinlater_links (job_id, attempts) VALUES /*rows*/ ON CONFLICT (job_id) DO UPDATE SET attempts = excluded.attempts

-- name: put_log_lines
INSERT INTO pinlater_links (job_id, log_lines) VALUES /*rows*/ ON CONFLICT (job_id) DO UPDATE SET log_lines = excluded.log_lines

-- name: copy_job
INSERT INTO pinlater_jobs ({new_job})
SELECT {copied_job}
FROM pinlater_jobs WHERE id = ?

-- name: quota
SELECT share, version FROM pinlater_shares WHERE queue_id = ?

-- name: locked_quota
SELECT share, version FROM pinlater_shares WHERE queue_id = ? FOR UPDATE

-- name: set_quota
UPDATE pinlater_shares SET share = ?, version = ? WHERE queue_id = ?

-- name: kv_entry
SELECT version, expires_at_ms FROM pinlater_notes WHERE kind = ? AND name = ? FOR UPDATE

-- name: write_kv_entry
UPDATE pinlater_notes SET version = ?, expires_at_ms = ?, body = ? WHERE kind = ? AND name = ?

-- name: kv_entries
SELECT name, body, version, expires_at_ms FROM pinlater_notes WHERE kind = ? AND expires_at_ms > ?

-- name: bucket
SELECT tokens, at_ms FROM pinlater_buckets WHERE queue = ? FOR UPDATE

-- name: fill_bucket
UPDATE pinlater_buckets SET tokens = ?, at_ms = ? WHERE queue = ?

-- name: insert_extended_jobs
INSERT INTO pinlater_jobs (job_keys, extended, {new_job})
VALUES

-- name: raise_schema_version
-- With the first extended job: a server that does not know these would misread it, and cannot open the store any more.
UPDATE pinlater_meta SET value = '{extended_version}' WHERE name = 'schema_version' AND value = '{schema_version}'

-- name: put_extensions
INSERT INTO pinlater_extensions (job_id, claim_timeout_ms, expires_at_ms) VALUES /*rows*/

-- name: put_expiries
INSERT INTO pinlater_expiries (job_id, expires_at_ms) VALUES /*rows*/ ON CONFLICT (job_id) DO UPDATE SET expires_at_ms = excluded.expires_at_ms

-- name: stop
-- What was asked to stop first stays so.
INSERT INTO pinlater_extensions (job_id, cancelled_by) VALUES /*rows*/
ON CONFLICT (job_id) DO UPDATE SET cancelled_by = excluded.cancelled_by

-- name: put_progress
INSERT INTO pinlater_extensions (job_id, fraction, progress, progress_at_ms) VALUES /*rows*/
ON CONFLICT (job_id) DO UPDATE SET fraction = excluded.fraction, progress = excluded.progress, progress_at_ms = excluded.progress_at_ms

-- name: put_job_tags
INSERT INTO pinlater_extensions (job_id, tags) VALUES /*rows*/ ON CONFLICT (job_id) DO UPDATE SET tags = excluded.tags

-- name: put_tags
INSERT INTO pinlater_tags (queue_id, tag, job_id) VALUES /*rows*/

-- name: tagged
SELECT tagged.job_id, job.state, job.priority, job.run_after_ms
FROM pinlater_tags tagged JOIN pinlater_jobs job ON job.id = tagged.job_id
WHERE tagged.queue_id = ? AND tagged.tag = ? AND tagged.job_id < ? ORDER BY tagged.job_id DESC LIMIT ?

-- name: times
SELECT created_at_ms, run_after_ms FROM pinlater_jobs WHERE id = ?

-- name: set_job_keys
UPDATE pinlater_jobs SET job_keys = ? WHERE id = ?

-- name: keys
-- Nothing is written at the end of a job whose key has no window: until_ms NULL counts as long as the job is live.
SELECT entry.name, entry.job_id, entry.priority, entry.slot,
    CASE WHEN entry.until_ms IS NULL AND COALESCE(job.state, 2) NOT IN (0, 1, 4, 8) THEN 0 ELSE entry.until_ms END,
    entry.outcome, entry.elsewhere
FROM pinlater_keys entry LEFT JOIN pinlater_jobs job ON job.id = entry.job_id
WHERE entry.queue_id = ? AND entry.name IN (/*keys*/)

-- name: put_keys
INSERT INTO pinlater_keys ({key_entry}) VALUES /*rows*/
ON CONFLICT (queue_id, name) DO UPDATE SET job_id = excluded.job_id, priority = excluded.priority, slot = excluded.slot, window_ms = excluded.window_ms,
    outcome = excluded.outcome, until_ms = excluded.until_ms, remove_at_ms = excluded.remove_at_ms, elsewhere = excluded.elsewhere

-- name: put_live_keys
INSERT INTO pinlater_keys ({live_key_entry}) VALUES /*rows*/
ON CONFLICT (queue_id, name) DO UPDATE SET job_id = excluded.job_id, priority = excluded.priority, slot = excluded.slot, window_ms = excluded.window_ms,
    outcome = excluded.outcome, until_ms = excluded.until_ms, remove_at_ms = excluded.remove_at_ms, elsewhere = excluded.elsewhere

-- name: add_live_keys
-- How many of them are new; nothing is changed of the others.
INSERT INTO pinlater_keys ({live_key_entry}) VALUES /*rows*/ ON CONFLICT (queue_id, name) DO NOTHING

-- name: untake_keys
-- What `add_live_keys` of this transaction has added, whose ids nobody else has.
DELETE FROM pinlater_keys WHERE queue_id = ? AND name IN (/*keys*/) AND job_id >= ?

-- name: remove_keys
DELETE FROM pinlater_keys WHERE queue_id = ? AND name IN (/*keys*/)

-- name: key_slots
SELECT slot FROM pinlater_keys UNION SELECT slot FROM pinlater_chains

-- name: windows
SELECT queue_id, name, job_id, priority, slot, until_ms, is_send_id, outcome, elsewhere FROM pinlater_keys
WHERE queue_id >= ? AND (queue_id, name) > (?, ?) AND until_ms > ? AND until_ms < {forever}
ORDER BY queue_id, name LIMIT ?

-- name: drop_window
DELETE FROM pinlater_keys WHERE queue_id = ? AND name = ? AND until_ms = ?

-- name: chains
SELECT chain.serialize_key, chain.job_id, chain.place, chain.queue_id, chain.since_ms, chain.behind, blocked.waiting
FROM pinlater_chains chain LEFT JOIN pinlater_blocked blocked ON blocked.serialize_key = chain.serialize_key
WHERE chain.serialize_key IN (/*keys*/)

-- name: live_chains
SELECT serialize_key FROM pinlater_chains WHERE serialize_key IN (/*keys*/)

-- name: put_chains
INSERT INTO pinlater_chains (serialize_key, job_id, place, queue_id, priority, slot, since_ms, behind) VALUES /*rows*/
ON CONFLICT (serialize_key) DO UPDATE SET job_id = excluded.job_id, place = excluded.place, queue_id = excluded.queue_id, priority = excluded.priority,
    since_ms = excluded.since_ms

-- name: add_chains
-- How many of them are new, as `add_live_keys`.
INSERT INTO pinlater_chains (serialize_key, job_id, place, queue_id, priority, slot, since_ms, behind) VALUES /*rows*/ ON CONFLICT (serialize_key) DO NOTHING

-- name: untake_chains
DELETE FROM pinlater_chains WHERE serialize_key IN (/*keys*/) AND job_id >= ?

-- name: remove_chains
DELETE FROM pinlater_chains WHERE serialize_key IN (/*keys*/)

-- name: put_waiting
INSERT INTO pinlater_waiting (serialize_key, place, job_id) VALUES /*rows*/

-- name: add_blocked
INSERT INTO pinlater_blocked (serialize_key, waiting, since_ms, queue_id) VALUES /*rows*/
ON CONFLICT (serialize_key) DO UPDATE SET waiting = pinlater_blocked.waiting + excluded.waiting, since_ms = excluded.since_ms,
    queue_id = excluded.queue_id

-- name: drop_unblocked
DELETE FROM pinlater_blocked WHERE waiting <= 0 AND serialize_key IN (/*keys*/)

-- name: put_barriers
INSERT INTO pinlater_barriers (serialize_key, shard_id) VALUES /*rows*/ ON CONFLICT (serialize_key) DO UPDATE SET shard_id = excluded.shard_id

-- name: barriers
SELECT serialize_key, shard_id FROM pinlater_barriers ORDER BY serialize_key LIMIT ?

-- name: remove_barriers
DELETE FROM pinlater_barriers WHERE serialize_key IN (/*keys*/)

-- name: open_chains
UPDATE pinlater_chains SET behind = '', since_ms = ? WHERE serialize_key IN (/*keys*/)

-- name: put_results
INSERT INTO pinlater_results (job_id, queue_id, priority, attempts_remaining, finished_at_ms, expires_at_ms, result_bytes, result)
VALUES /*rows*/ ON CONFLICT (job_id) DO UPDATE SET finished_at_ms = excluded.finished_at_ms, expires_at_ms = excluded.expires_at_ms,
    result_bytes = excluded.result_bytes, result = excluded.result

-- name: firings
SELECT schedule, mark FROM pinlater_firings WHERE schedule IN (/*keys*/)

-- name: remove_firings
DELETE FROM pinlater_firings WHERE schedule IN (/*keys*/)

-- name: hold_references
INSERT INTO pinlater_held (job_id, kind, reference) VALUES /*rows*/

-- name: put_shared_references
INSERT INTO pinlater_shared (reference, others) VALUES /*rows*/ ON CONFLICT (reference) DO UPDATE SET others = excluded.others

-- name: share_references
UPDATE pinlater_shared SET others = ? WHERE reference = ?

-- name: unshare_references
DELETE FROM pinlater_shared WHERE reference = ?

-- name: forget_references
DELETE FROM pinlater_dropped WHERE reference IN (/*keys*/)

-- name: all_held_references
SELECT job_id, kind, reference FROM pinlater_held
WHERE job_id >= ? AND (job_id > ? OR kind > ?) ORDER BY job_id, kind LIMIT ?

-- name: all_dropped_references
SELECT reference FROM pinlater_dropped WHERE reference > ? ORDER BY reference LIMIT ?

-- name: schema_version_for_change
SELECT value FROM pinlater_meta WHERE name = 'schema_version' FOR UPDATE

-- name: raise_groups_version
UPDATE pinlater_meta SET value = '{groups_version}' WHERE name = 'schema_version'
    AND value IN ('{schema_version}', '{extended_version}', '{references_version}')

-- name: any_groups
SELECT 1 FROM (SELECT queue_id FROM pinlater_virtual_times LIMIT 1) one

-- name: raise_references_version
UPDATE pinlater_meta SET value = '{references_version}' WHERE name = 'schema_version'
    AND value IN ('{schema_version}', '{extended_version}')

-- name: raise_successors_version
UPDATE pinlater_meta SET value = '{successors_version}' WHERE name = 'schema_version'
    AND value IN ('{schema_version}', '{extended_version}', '{references_version}', '{groups_version}')

-- name: any_references
SELECT 1 FROM (SELECT job_id FROM pinlater_held LIMIT 1) held UNION ALL SELECT 1 FROM (SELECT spot FROM pinlater_dropped LIMIT 1) dropped

-- name: count_jobs
SELECT COUNT(*) FROM pinlater_jobs

-- name: any_jobs
SELECT 1 FROM (SELECT id FROM pinlater_jobs LIMIT 1) one

-- name: export_queues
SELECT id, name, created_at_ms FROM pinlater_queues WHERE name IS NOT NULL ORDER BY id

-- name: export_config
SELECT name, version, deleted_version, text FROM pinlater_records ORDER BY revision

-- name: export_quotas
SELECT queue_id, share, version FROM pinlater_shares ORDER BY queue_id

-- name: export_kv
SELECT kind, name, body, expires_at_ms FROM pinlater_notes WHERE expires_at_ms > ? ORDER BY kind, name

-- name: export_job_page
SELECT COUNT(*), SUM(body_bytes), MAX(id) FROM (SELECT id, body_bytes FROM pinlater_jobs WHERE id > ? ORDER BY id LIMIT ?) page

-- name: export_job_sizes
SELECT id, body_bytes FROM pinlater_jobs WHERE id > ? ORDER BY id LIMIT ?

-- name: export_jobs
SELECT {exported_numbers}, {exported_rest} FROM pinlater_jobs WHERE id > ? AND id <= ? ORDER BY id

-- name: export_links
SELECT job_id, origin, origin_attempts, moved_to, undelivered, undelivered_attempts, undelivered_run_after_ms, attempts, log_lines
FROM pinlater_links WHERE job_id > ? AND job_id <= ?

-- name: export_extensions
SELECT job_id, claim_timeout_ms, expires_at_ms, cancelled_by, fraction, progress, progress_at_ms, tags
FROM pinlater_extensions WHERE job_id > ? AND job_id <= ?

-- name: export_result_page
SELECT COUNT(*), SUM(result_bytes & 2147483647), MAX(job_id)
FROM (SELECT job_id, result_bytes FROM pinlater_results WHERE job_id > ? ORDER BY job_id LIMIT ?) page

-- name: export_result_sizes
SELECT job_id, result_bytes & 2147483647 FROM pinlater_results WHERE job_id > ? ORDER BY job_id LIMIT ?

-- name: export_results
SELECT entry.job_id, entry.queue_id, entry.priority, entry.attempts_remaining, entry.finished_at_ms, entry.expires_at_ms,
    entry.result_bytes, entry.result, job.created_at_ms, job.run_after_ms, job.attempts_allowed
FROM pinlater_results entry LEFT JOIN pinlater_jobs job ON job.id = entry.job_id
WHERE entry.job_id > ? AND entry.job_id <= ? ORDER BY entry.job_id

-- name: export_keys
SELECT entry.queue_id, entry.name, entry.job_id, entry.priority, entry.slot, entry.window_ms, entry.is_send_id, entry.outcome,
    CASE WHEN entry.until_ms IS NULL AND COALESCE(job.state, 2) NOT IN (0, 1, 4, 8) THEN COALESCE(job.finished_at_ms, 1)
        ELSE entry.until_ms END,
    CASE WHEN job.id IS NULL THEN 0 ELSE 1 END, entry.elsewhere
FROM pinlater_keys entry LEFT JOIN pinlater_jobs job ON job.id = entry.job_id
WHERE entry.queue_id >= ? AND (entry.queue_id > ? OR entry.name > ?) AND entry.name < ?
ORDER BY entry.queue_id, entry.name LIMIT ?

-- name: export_successors
SELECT name, job_id, priority FROM pinlater_keys WHERE queue_id = ? AND name >= ? AND name < ?

-- name: export_chains
SELECT chain.serialize_key, chain.job_id, chain.place, chain.queue_id, chain.priority, chain.slot, chain.since_ms, chain.behind,
    COALESCE(blocked.waiting, 0), job.job_keys
FROM pinlater_chains chain LEFT JOIN pinlater_blocked blocked ON blocked.serialize_key = chain.serialize_key
    LEFT JOIN pinlater_jobs job ON job.id = chain.job_id
WHERE chain.serialize_key > ? ORDER BY chain.serialize_key LIMIT ?

-- name: export_firings
SELECT schedule, mark FROM pinlater_firings ORDER BY schedule

-- name: export_shared
SELECT reference, others FROM pinlater_shared WHERE reference > ? ORDER BY reference LIMIT ?

-- name: import_queues
INSERT INTO pinlater_queues (name, created_at_ms) VALUES /*rows*/

-- name: import_jobs
INSERT INTO pinlater_jobs ({imported_job}) VALUES /*rows*/

-- name: import_links
INSERT INTO pinlater_links (job_id, origin, origin_attempts, moved_to, undelivered, undelivered_attempts,
    undelivered_run_after_ms, attempts, log_lines) VALUES /*rows*/

-- name: import_extensions
INSERT INTO pinlater_extensions (job_id, claim_timeout_ms, expires_at_ms, cancelled_by, fraction, progress, progress_at_ms,
    tags) VALUES /*rows*/

-- name: import_cancelled
INSERT INTO pinlater_cancelled (job_id, queue_id, finished_at_ms) VALUES /*rows*/

-- name: import_quotas
INSERT INTO pinlater_shares (queue_id, share, version) VALUES /*rows*/

-- name: import_kv
INSERT INTO pinlater_notes (kind, name, version, expires_at_ms, body) VALUES /*rows*/

-- name: import_dropped
INSERT INTO pinlater_dropped (reference, spot) VALUES /*rows*/

-- name: import_shared
INSERT INTO pinlater_shared (reference, others) VALUES /*rows*/

-- name: first_waiting
SELECT waiting.place, waiting.job_id, job.queue_id, job.priority, job.job_keys FROM pinlater_waiting waiting
    JOIN pinlater_jobs job ON job.id = waiting.job_id
WHERE waiting.serialize_key = ? ORDER BY waiting.place LIMIT 1

-- name: remove_one_waiting
DELETE FROM pinlater_waiting WHERE serialize_key = ? AND place = ?

-- name: set_store_id
UPDATE pinlater_meta SET value = ? WHERE name = 'store_id'

-- name: counts_by_queue
SELECT queue.name, job.state, COUNT(*) FROM pinlater_queues queue JOIN pinlater_jobs job ON job.queue_id = queue.id
WHERE queue.name IS NOT NULL GROUP BY queue.name, job.state

-- name: put_lines
INSERT INTO pinlater_lines (job_id, queue_id, priority, grp, run_after_ms) VALUES /*rows*/

-- name: put_virtual_times
INSERT INTO pinlater_virtual_times (queue_id, priority, turn) VALUES /*rows*/ ON CONFLICT (queue_id, priority) DO NOTHING

-- name: set_virtual_time
UPDATE pinlater_virtual_times SET turn = ? WHERE queue_id = ? AND priority = ?

-- name: put_turns
INSERT INTO pinlater_turns (queue_id, priority, grp, turn, waits) VALUES /*rows*/
ON CONFLICT (queue_id, priority, grp) DO UPDATE SET turn = excluded.turn, waits = excluded.waits

-- name: await_turns
-- A group that waits already stays as it is; another one has its next turn now, or later, where it had turns ahead.
INSERT INTO pinlater_turns (queue_id, priority, grp, turn, waits) VALUES /*rows*/
ON CONFLICT (queue_id, priority, grp) DO UPDATE SET turn = max(pinlater_turns.turn, excluded.turn), waits = 1
WHERE pinlater_turns.waits = 0

-- name: turns
SELECT grp, turn, waits FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND grp IN (/*keys*/)

-- name: first_turns
-- With whether there are groups that wait for no turn: they have turns but no jobs, or are held back.
SELECT turn, grp, EXISTS (SELECT 1 FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits = 0)
    OR EXISTS (SELECT 1 FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits > 1)
FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits = 1 ORDER BY turn, grp LIMIT ?

-- name: in_turn_in_priority
-- The jobs in line of groups that are not held back now.
SELECT ?, COUNT(*) FROM (SELECT 1 FROM pinlater_turns turn
    JOIN pinlater_lines line ON line.queue_id = turn.queue_id AND line.priority = turn.priority AND line.grp = turn.grp
    WHERE turn.queue_id = (SELECT id FROM pinlater_queues WHERE name = ?) AND turn.priority = ?
        AND turn.waits BETWEEN 1 AND ? LIMIT ?) AS eligible

-- name: held_groups
-- Those that are held back now.
SELECT grp FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits > ? ORDER BY waits LIMIT ?

-- name: held_among
-- The same among these groups.
SELECT grp FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits > ? AND grp IN (/*keys*/)

-- name: in_line_between
-- The jobs of a group from one place in the order of its line to another.
SELECT COUNT(*) FROM (SELECT 1 FROM pinlater_lines WHERE queue_id = ? AND priority = ? AND grp = ?
    AND run_after_ms BETWEEN ? AND ? AND (run_after_ms > ? OR job_id > ?) AND (run_after_ms < ? OR job_id <= ?)
    LIMIT ?) AS line

-- name: held_turns
SELECT grp, turn, waits FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits BETWEEN 2 AND ? LIMIT ?

-- name: times_of_queue
SELECT priority FROM pinlater_virtual_times WHERE queue_id = ?

-- name: config_entry
SELECT version, text, deleted_version FROM pinlater_records WHERE name = ?

-- name: groups_in_priority
-- Of groups by name, those that have jobs in line.
SELECT grp FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND grp >= ? AND waits > 0 ORDER BY grp LIMIT ?

-- name: in_line_of_group
SELECT ?, ?, COUNT(*), MIN(run_after_ms) FROM (SELECT run_after_ms FROM pinlater_lines
    WHERE queue_id = ? AND priority = ? AND grp = ? ORDER BY run_after_ms LIMIT ?) AS line

-- name: last_past_turn
-- Of the groups that do not wait: those without jobs, and those held back.
SELECT MAX(turn) FROM (SELECT MAX(turn) AS turn FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits = 0
    UNION ALL SELECT MAX(turn) FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits > 1) AS past

-- name: past_turns
SELECT grp FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND waits = 0 AND turn <= ? ORDER BY turn, grp LIMIT ?

-- name: remove_turns
DELETE FROM pinlater_turns WHERE queue_id = ? AND priority = ? AND grp IN (/*keys*/)

-- name: end_waits
UPDATE pinlater_turns SET waits = 0 WHERE queue_id = ? AND priority = ? AND grp IN (/*keys*/)

-- name: give_turn_back
UPDATE pinlater_turns SET turn = turn - ? WHERE queue_id = ? AND priority = ? AND grp = ?

-- name: first_in_line
SELECT * FROM (SELECT grp, run_after_ms, job_id FROM pinlater_lines
    WHERE queue_id = ? AND priority = ? AND grp = ? ORDER BY run_after_ms, job_id LIMIT ?) AS line

-- name: turns_of_queue
SELECT priority, grp FROM pinlater_turns WHERE queue_id = ? LIMIT ?

-- name: forget_virtual_times
DELETE FROM pinlater_virtual_times WHERE queue_id = ?

-- name: end_clearing
DELETE FROM pinlater_virtual_times WHERE queue_id = ? AND priority = ?

-- name: jobs_behind
SELECT id, queue_id, job_keys FROM pinlater_jobs WHERE id > ? ORDER BY id LIMIT ?

-- name: lines_of_queue
SELECT job_id FROM pinlater_lines WHERE queue_id = ? LIMIT ?

-- name: permit_counts
SELECT grp, COUNT(*) FROM pinlater_permits WHERE queue_id = ? AND grp IN (/*keys*/) GROUP BY grp

-- name: permits
SELECT holder, grp, priority, claim_descriptor FROM pinlater_permits WHERE queue_id = ? AND holder IN (/*keys*/)

-- name: claims_of_permits
SELECT holder, grp, claim_descriptor FROM pinlater_permits WHERE queue_id = ? AND holder IN (/*keys*/)

-- name: due_permits
SELECT holder, grp, priority, claim_descriptor FROM pinlater_permits
WHERE queue_id = ? AND check_at_ms <= ? ORDER BY check_at_ms LIMIT ?

-- name: permits_of_queue
SELECT holder FROM pinlater_permits WHERE queue_id = ? LIMIT ?

-- name: put_permits
INSERT INTO pinlater_permits (queue_id, holder, grp, priority, claim_descriptor, check_at_ms) VALUES /*rows*/
ON CONFLICT (queue_id, holder) DO UPDATE
SET grp = excluded.grp, priority = excluded.priority, claim_descriptor = excluded.claim_descriptor,
    check_at_ms = excluded.check_at_ms

-- name: put_permits_off
UPDATE pinlater_permits SET check_at_ms = ? WHERE queue_id = ? AND holder IN (/*keys*/)

-- name: remove_permits
DELETE FROM pinlater_permits WHERE queue_id = ? AND holder IN (/*keys*/)

-- name: permit_groups
SELECT grp, tokens, at_ms, full_at_ms, waiting, until_ms FROM pinlater_permit_groups WHERE queue_id = ? AND grp IN (/*keys*/)

-- name: lock_permits
SELECT grp FROM pinlater_permit_groups WHERE queue_id = ? AND grp = ? FOR UPDATE

-- name: put_permit_groups
INSERT INTO pinlater_permit_groups (queue_id, grp, tokens, at_ms, full_at_ms, waiting, until_ms) VALUES /*rows*/
ON CONFLICT (queue_id, grp) DO UPDATE
SET tokens = excluded.tokens, at_ms = excluded.at_ms, full_at_ms = excluded.full_at_ms, waiting = excluded.waiting,
    until_ms = excluded.until_ms

-- name: past_permit_groups
SELECT grp FROM pinlater_permit_groups WHERE queue_id = ? AND until_ms <= ? LIMIT ?

-- name: permit_groups_of_queue
SELECT grp FROM pinlater_permit_groups WHERE queue_id = ? LIMIT ?

-- name: remove_permit_groups
DELETE FROM pinlater_permit_groups WHERE queue_id = ? AND grp IN (/*keys*/)

-- name: rooms
SELECT grp, jobs, until_ms FROM pinlater_rooms WHERE queue_id = ? AND grp IN (/*keys*/)

-- name: put_rooms
INSERT INTO pinlater_rooms (queue_id, grp, jobs, until_ms) VALUES /*rows*/
ON CONFLICT (queue_id, grp) DO UPDATE SET jobs = excluded.jobs, until_ms = excluded.until_ms

-- name: past_rooms
SELECT grp FROM pinlater_rooms WHERE queue_id = ? AND until_ms <= ? LIMIT ?

-- name: rooms_of_queue
SELECT grp FROM pinlater_rooms WHERE queue_id = ? LIMIT ?

-- name: remove_rooms
DELETE FROM pinlater_rooms WHERE queue_id = ? AND grp IN (/*keys*/)
