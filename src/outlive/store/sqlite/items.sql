-- What graphs remember across threads. Names are those of the other stores.

-- name: put_item
-- A value that is written again keeps the time at which it was made.
insert into graph_item (tenant, prefix, key, value, created_at, updated_at, ttl_ms, expires_at)
values (:tenant, :prefix, :key, :value, :now, :now, :ttl_ms, :now + :ttl_ms)
on conflict (tenant, prefix, key) do update set
    value = excluded.value, updated_at = excluded.updated_at, ttl_ms = excluded.ttl_ms,
    expires_at = excluded.expires_at;

-- name: drop_item
-- One by its key.
delete from graph_item where tenant = :tenant and prefix = :prefix and key = :key;

-- name: drop_expired_items
-- Whose time is over, before anything is written.
delete from graph_item where expires_at <= :now;

-- name: find_item
-- One by its key.
select prefix, key, value, created_at, updated_at, ttl_ms from graph_item
where tenant = :tenant and prefix = :prefix and key = :key and (expires_at is null or expires_at > :now);

-- name: find_items
-- Of a namespace and those below it: a slash comes right behind the point.
select prefix, key, value, created_at, updated_at, ttl_ms from graph_item
where
    tenant = :tenant and (:prefix = '' or prefix = :prefix or (prefix >= :prefix || '.' and prefix < :prefix || '/'))
    and (expires_at is null or expires_at > :now)
order by updated_at desc, prefix, key
limit :limit offset :offset;

-- name: find_prefixes
-- Namespaces that have something.
select distinct prefix from graph_item
where tenant = :tenant and (expires_at is null or expires_at > :now)
order by prefix;

-- name: refresh_item
-- It was read.
update graph_item set expires_at = :now + ttl_ms
where tenant = :tenant and prefix = :prefix and key = :key and ttl_ms is not null;
