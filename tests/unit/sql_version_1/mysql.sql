-- A store as the first version of the tables left it, with jobs in all states and a deleted queue.
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
    KEY pinlater_jobs_due (state, claim_expires_at_ms, finished_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO pinlater_sequence (id, next_id) VALUES (1, 1000000000000000);

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
