"""Which store, or other program, a fixture needs, so that `--without` can leave its tests out."""

NEEDS = {
    "redis": {"redis_server", "durable_redis_server", "redis_places", "redis_cluster_places", "four_stores"},
    "mysql": {"mysql_server", "durable_mysql_server", "mysql_places", "four_stores"},
    "postgres": {"postgres_server", "durable_postgres_server", "postgres_places"},
    "dynamodb": {"dynamodb_server", "durable_dynamodb_server", "dynamodb_places"},
    "languages": {"node_worker", "built_callers", "apache_types", "typescript_client"},
    "browser": {"browser"},
    "prometheus": {"promtool"},
    "fuse": {"disk"},
}
SERVERS = frozenset(NEEDS)
