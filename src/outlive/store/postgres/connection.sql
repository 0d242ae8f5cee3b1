-- What is particular to PostgreSQL: how the statements of queries.sql that are built of parts end, transactions of more
-- than one statement, settings, and migrations.

-- name: append_one
-- As append, for one run, with every value a parameter of its own: it is what a run that is alone pays for each step.
-- The update locks the row itself, and compares again whatever it has waited for.
with accepted as (
    update {schema}.run
    set
        next_seq = %(next_seq)s,
        head = decode(%(head)s, 'hex'),
        updated_at = {moment},
        lapses = case when %(progress)s::boolean then 0 else lapses end,
        prologue_seq = case when %(turn)s::boolean then coalesce(prologue_seq, %(seq)s) else prologue_seq end,
        window_seq = case when %(turn)s::boolean then %(seq)s else window_seq end
    where
        tenant = %(tenant)s and id = %(run)s and epoch = %(epoch)s and token = %(token)s and next_seq = %(seq)s
    returning tenant, id as run, 1::bigint as place, %(seq)s::bigint as seq, updated_at as at, {durably}
);

-- name: append_using
-- As append_one, if what it depends on is good for exactly this: an approval, a business key, or both. First the run's
-- row is locked, then the approval's, then the key's, as in every append; what is compared is what is there once they
-- are held, and so is the time. The key is taken by an insert, which also sees what no snapshot of the statement could.
with locked as materialized (
    select epoch, token, next_seq from {schema}.run where tenant = %(tenant)s and id = %(run)s for no key update
),
usable as materialized (
    select approval.tenant, approval.id, approval.expires_at
    from {schema}.approval
    cross join locked
    where
        approval.tenant = %(tenant)s and approval.id = %(approval)s and approval.run_id = %(run)s
        and approval.operation = %(operation)s and approval.executed = %(executed)s and approval.policy = %(policy)s
        and approval.status = 'approved'
    for no key update of approval
),
taken as (
    insert into {schema}.business_key as held (
        tenant, key, shown, tool, digest, run_id, operation, status, created_at, updated_at
    )
    select
        %(tenant)s, %(take_key)s, %(take_shown)s, %(take_tool)s, %(take_digest)s, %(run)s, %(take_operation)s, 'open',
        {moment}, {moment}
    from locked
    where
        %(take_key)s::text is not null
        and locked.epoch = %(epoch)s and locked.token = %(token)s and locked.next_seq = %(seq)s
        and (%(approval)s::text is null or exists (select from usable where expires_at > {moment}))
    on conflict (tenant, key) do update set
        shown = excluded.shown,
        tool = excluded.tool,
        digest = excluded.digest,
        run_id = excluded.run_id,
        operation = excluded.operation,
        status = excluded.status,
        outcome = null,
        error = '',
        changes = held.changes + 1,
        updated_at = excluded.updated_at
    where
        held.status = 'free'
        or (
            held.run_id = excluded.run_id and held.operation = excluded.operation
            and held.status in ('open', 'unknown')
        )
    returning held.key
),
accepted as (
    update {schema}.run
    set
        next_seq = %(next_seq)s,
        head = decode(%(head)s, 'hex'),
        updated_at = {moment},
        lapses = case when %(progress)s::boolean then 0 else run.lapses end
    from locked
    where
        run.tenant = %(tenant)s and run.id = %(run)s
        and locked.epoch = %(epoch)s and locked.token = %(token)s and locked.next_seq = %(seq)s
        and case
            when %(take_key)s::text is not null then exists (select from taken)
            else exists (select from usable where expires_at > {moment})
        end
    returning run.tenant, run.id as run, 1::bigint as place, %(seq)s::bigint as seq, run.updated_at as at, {durably}
);

-- name: used
-- The end of such an append: whether it was stored, where the run was ours, and what stood in its way.
select
    1::bigint, exists (select from accepted),
    case
        when %(approval)s::text is null or exists (select from usable where expires_at > {moment}) then 'key'
        else 'approval'
    end
from locked
where locked.epoch = %(epoch)s and locked.token = %(token)s and locked.next_seq = %(seq)s;

-- name: lock_keys
-- The business keys that an append speaks of, as they are once they are held: whoever is just beginning to wait for one
-- is among its waiters then, or finds that it has changed. In the order of their digests, which no two appends take
-- crosswise.
select
    held.tenant, held.key, held.run_id, held.operation, held.status, held.waiters, held.changes, held.created_at
from {schema}.business_key as held
join (
    select accepted.tenant, given.key
    from json_to_recordset(%(keys)s::json) as given (place bigint, key text)
    join accepted on accepted.place = given.place
) as spoken on spoken.tenant = held.tenant and spoken.key = held.key
order by held.key
for no key update of held;

-- name: add_one_entry
-- As add_entry, for the only entry of the only run; its seq and epoch are those of the append.
insert into {schema}.entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
select
    accepted.tenant, accepted.run, %(seq)s, %(epoch)s, %(kind)s, %(version)s, %(at)s, %(scope)s, %(key)s, %(body)s,
    %(payload)s, decode(%(blob)s, 'hex'), %(data_class)s, %(key_id)s, decode(%(digest)s, 'hex')
from accepted;

-- name: accepted
-- The end of an append: which of the given runs were ours.
select place, true, '' from accepted;

-- name: judged
-- The end of an append with changes: which of the given runs were ours, and what the status is that one refused to leave.
select locked.place, accepted.place is not null, locked.status
from locked
join given on given.place = locked.place
left join accepted on accepted.place = locked.place
where locked.epoch = given.epoch and locked.token = given.token and locked.next_seq = given.seq;

-- name: accepted_rows
-- The end of a start or a control claim: the rows as they are now.
select * from accepted;

-- name: claimed_rows
-- The end of a claim: the rows as they are now, and which database they are in.
select accepted.*, {database} as database from accepted;

-- name: database
-- Which database this is, and the timeline that it writes to.
select
    case when not pg_is_in_recovery() then
        (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    end;

-- name: claimable
-- All ways to be claimable at once; a run may be claimable in two of them. The time goes with each row. Among runs that
-- are due since the same moment the id decides: else it would be where the rows happen to lie.
select found.*, {now} as moment from ({found}) as found order by found.priority desc, found.due, found.id;

-- name: renewed
-- The end of a renewal: the time and the database even if nothing was ours.
select
    {moment} as moment, kept.place, kept.place is not null and ({unread}) as unread, {database} as database
from (select 1) as always
left join kept on true;

-- name: lock_run
-- As find_authority, whoever may append.
select *, {moment} as moment from {schema}.run where tenant = %(tenant)s and id = %(run)s for no key update;

-- name: begin
-- Whatever the connection or its role was set to.
begin isolation level read committed read write;

-- name: set_up
-- For the transaction alone: what is set for longer would be lost, or left to somebody else, behind a pooler.
select
    {durably},
    set_config('lock_timeout', %(wait_ms)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true);

-- name: commit
-- Durable when this returns.
commit;

-- name: rollback
-- Nothing of the transaction is stored.
rollback;

-- name: written
-- How many rows of our tables this server process has written: what grows within a transaction was written by it.
select relname, n_tup_ins + n_tup_upd + n_tup_del from pg_stat_xact_user_tables
where schemaname = %(schema)s and relname = any(%(tables)s::text[]);

-- name: settings
-- What decides whether an acknowledged commit can be lost, and how old the server is.
select name, setting from pg_settings
where
    name in (
        'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'server_version',
        'server_version_num', 'server_encoding'
    );

-- name: replicas
-- How many follow this server; more than the number is not for everybody to see.
select count(*) from pg_stat_replication;

-- name: lock_migrations
-- One process at a time; the lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended(%(schema)s, 7310578116));

-- name: has_schema
-- Creating a schema that is there needs a privilege that a worker need not have.
select exists (select 1 from pg_namespace where nspname = %(schema)s);

-- name: create_schema
-- Everything of ours is in it.
create schema {schema};

-- name: tables
-- Whose schema this is. What an extension has put there is nobody's.
select relname::text
from pg_class
join pg_namespace on pg_namespace.oid = relnamespace
where
    nspname = %(schema)s and relkind in ('r', 'p', 'f')
    and not exists (
        select from pg_depend
        where classid = 'pg_class'::regclass and objid = pg_class.oid and deptype = 'e'
    )
order by relname;

-- name: create_migration
-- What was applied. `stage` is pre (the release before goes on with it) or post (it does not).
create table {schema}.migration (
    number bigint not null,
    stage text not null check (stage in ('pre', 'post')),
    name text not null,
    sha256 text not null,
    applied_at bigint not null,
    primary key (number, stage)
);

-- name: migrations
-- What was applied, and the digest it had.
select number, stage, name, sha256 from {schema}.migration order by number, stage desc;

-- name: record_migration
-- In the same transaction as the migration.
insert into {schema}.migration (number, stage, name, sha256, applied_at)
values (%(number)s, %(stage)s, %(name)s, %(sha256)s, {moment});

-- name: older_workers
-- Workers that do not know a migration and may be alive: they gave a sign of life not long ago, or own a run.
select worker.* from {schema}.worker
where
    worker.knows < %(number)s
    and (
        worker.seen_at >= {now} - %(within_ms)s
        or exists (
            select from {schema}.run
            where run.status = 'running' and run.owner = worker.owner and run.expires_at > {now}
        )
    )
order by worker.started_at, worker.owner;

-- name: find_start
-- What a start needs to know, at once: the time, and the run if there is one; else its columns are null.
select {moment} as moment, run.*
from (values (1)) as always
left join {schema}.run on run.tenant = %(tenant)s and run.id = %(run)s;

-- name: listen
-- Hear of every hint that is given from now on. The channel is named like the schema.
listen {schema};

-- name: notify
-- A hint, never in the transaction that it tells of: NOTIFY takes a lock of the whole database at its commit. That one
-- has nothing that must reach the disk.
select set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, %(payload)s);

-- name: lock_origin
-- Until the end of the transaction no other one has it: two runs of one origin do not both find that nothing was done.
select pg_advisory_xact_lock(hashtextextended('outlive ' || %(tenant)s::text || ' ' || %(origin)s::text, 0));
