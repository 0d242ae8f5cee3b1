-- What is particular to PostgreSQL: how the statements of queries.sql that are built of parts end, transactions of more
-- than one statement, settings, and migrations.

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
-- The end of a start or a claim: the rows as they are now.
select * from accepted;

-- name: claimable
-- All ways to be claimable at once; a run may be claimable in two of them. The time goes with each row.
select found.*, {now} as moment from ({found}) as found order by found.priority desc, found.due;

-- name: renewed
-- The end of a renewal: the time even if nothing was ours.
select {moment} as moment, kept.place, kept.place is not null and ({unread}) as unread
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
    name in ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'server_version_num');

-- name: lock_migrations
-- One process at a time; the lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended(%(schema)s, 7310578116));

-- name: has_schema
-- Creating a schema that is there needs a privilege that a worker need not have.
select exists (select 1 from pg_namespace where nspname = %(schema)s);

-- name: create_schema
-- Everything of ours is in it.
create schema {schema};

-- name: has_migrations
-- Whether this schema was ever migrated.
select to_regclass(%(table)s) is not null;

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
