-- What graphs remember across threads. Names are those of the other stores; words in braces are as in queries.sql.

-- name: put_item
-- A value that is written again keeps the time at which it was made.
insert into {schema}.graph_item (tenant, prefix, key, value, created_at, updated_at, ttl_ms, expires_at)
values (
    %(tenant)s, %(prefix)s, %(key)s, %(value)s, {moment}, {moment}, %(ttl_ms)s::bigint, {moment} + %(ttl_ms)s::bigint
)
on conflict (tenant, prefix, key) do update set
    value = excluded.value, updated_at = excluded.updated_at, ttl_ms = excluded.ttl_ms,
    expires_at = excluded.expires_at;

-- name: drop_item
-- One by its key.
delete from {schema}.graph_item where tenant = %(tenant)s and prefix = %(prefix)s and key = %(key)s;

-- name: drop_expired_items
-- Whose time is over, before anything is written.
delete from {schema}.graph_item where expires_at <= {moment};

-- name: find_item
-- One by its key.
select prefix, key, value, created_at, updated_at, ttl_ms from {schema}.graph_item
where tenant = %(tenant)s and prefix = %(prefix)s and key = %(key)s and (expires_at is null or expires_at > {moment});

-- name: find_items
-- Of a namespace and those below it: a slash comes right behind the point.
select prefix, key, value, created_at, updated_at, ttl_ms from {schema}.graph_item
where
    tenant = %(tenant)s
    and (
        %(prefix)s::text = '' or prefix = %(prefix)s
        or (prefix >= %(prefix)s::text || '.' and prefix < %(prefix)s::text || '/')
    )
    and (expires_at is null or expires_at > {moment})
order by updated_at desc, prefix, key
limit %(limit)s::bigint offset %(offset)s::bigint;

-- name: find_prefixes
-- Namespaces that have something.
select distinct prefix from {schema}.graph_item
where tenant = %(tenant)s and (expires_at is null or expires_at > {moment})
order by prefix;

-- name: refresh_item
-- It was read.
update {schema}.graph_item set expires_at = {moment} + ttl_ms
where tenant = %(tenant)s and prefix = %(prefix)s and key = %(key)s and ttl_ms is not null;
