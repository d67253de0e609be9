-- A store as the first version of the tables left it, with jobs in all states and a deleted queue.
CREATE TABLE IF NOT EXISTS pinlater_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pinlater_queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
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
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS pinlater_jobs_order ON pinlater_jobs (queue_id, state, priority, run_after_ms);
CREATE INDEX IF NOT EXISTS pinlater_jobs_claims ON pinlater_jobs (claim_expires_at_ms) WHERE state = 1;
CREATE INDEX IF NOT EXISTS pinlater_jobs_succeeded ON pinlater_jobs (finished_at_ms) WHERE state = 2;
CREATE INDEX IF NOT EXISTS pinlater_jobs_failed ON pinlater_jobs (finished_at_ms) WHERE state = 3;

INSERT INTO pinlater_meta (name, value) VALUES ('shard_id', '1'), ('schema_version', '1'), ('store_id', 'before');
INSERT INTO pinlater_queues (id, name, created_at_ms) VALUES
    (1, 'mail', 1780000000001), (2, NULL, 1780000000002), (3, 'post', 1780000000003);
UPDATE pinlater_sequence SET next_id = 1780000000000009;
INSERT INTO pinlater_jobs (id, queue_id, state, priority, run_after_ms, attempts_allowed, attempts_remaining,
    created_at_ms, updated_at_ms, claimed_at_ms, claim_timeout_ms, claim_expires_at_ms, finished_at_ms,
    claim_descriptor, custom_status, body_bytes, body)
VALUES
    (1780000000000001, 1, 0, 1, 1780000000001, 2, 2, 1780000000001, 1, NULL, NULL, NULL, NULL, NULL, '', 3, x'6f6e65'),
    (1780000000000002, 1, 1, 1, 1780000000001, 2, 2, 1780000000001, 1, 1780000000005, 500, 1780000000505, NULL,
        'a:b:c:d:w', '', 3, x'74776f'),
    (1780000000000003, 1, 2, 1, 1780000000001, 2, 2, 1780000000001, 1, 1780000000005, 500, NULL, 1780000000100,
        'a:b:c:e:w', '', 5, x'7468726565'),
    (1780000000000004, 1, 3, 1, 1780000000001, 2, 0, 1780000000001, 1, 1780000000005, 500, NULL, 1780000000200,
        'a:b:c:f:w', 'why', 4, x'666f7572'),
    (1780000000000005, 2, 2, 1, 1780000000001, 2, 2, 1780000000001, 1, 1780000000005, 500, NULL, 1780000000100,
        'a:b:c:g:w', '', 4, x'66697665');
