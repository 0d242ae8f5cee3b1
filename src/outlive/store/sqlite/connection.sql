-- What is particular to a SQLite connection. The statements about runs are in queries.sql.

-- name: begin
-- Take the write lock of the database now, not at the first write.
begin immediate;

-- name: begin_read
-- Several statements that see the same moment.
begin;

-- name: commit
-- Durable when this returns (synchronous = full).
commit;

-- name: rollback
-- Nothing of the transaction is stored.
rollback;

-- name: savepoint
-- Each request of a shared commit can be undone alone.
savepoint request;

-- name: undo_savepoint
-- Undo this request, keep the others.
rollback to request;

-- name: release_savepoint
-- This request joins the commit.
release request;

-- name: use_pages
-- Of a file that is still empty. What is longer than a quarter of a page is put apart, into pages of its own: a message of
-- one or two thousand characters should not be.
pragma page_size = 8192;

-- name: use_wal
-- Readers do not wait for the writer. Answers with the mode that is now in force.
pragma journal_mode = wal;

-- name: use_synchronous_full
-- Every commit reaches the disk before it is acknowledged.
pragma synchronous = full;

-- name: use_synchronous_off
-- For tests alone: an acknowledged commit may be lost with the machine.
pragma synchronous = off;

-- name: use_no_checkpoints
-- Copying the journal into the database is somebody else's: it takes as long as many commits.
pragma wal_autocheckpoint = 0;

-- name: checkpoint
-- Copy what nobody reads any more from the journal into the database; nobody waits for it.
pragma wal_checkpoint (passive);

-- name: use_read_only
-- A reader's connection cannot write by mistake.
pragma query_only = on;

-- name: journal_mode
-- The journal mode in force.
pragma journal_mode;

-- name: synchronous
-- 0 off, 1 normal, 2 full, 3 extra.
pragma synchronous;

-- name: files
-- Which files a connection is open on.
pragma database_list;

-- name: tables
-- Whose database this is.
select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name;

-- name: has_migrations
-- Whether this database was ever migrated.
select 1 from sqlite_schema where type = 'table' and name = 'migration';

-- name: migrations
-- What was applied, and the digest it had.
select number, name, sha256 from migration order by number;

-- name: record_migration
-- Runs in the same transaction as the migration.
insert into migration (number, name, sha256, applied_at)
values (:number, :name, :sha256, cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer));

-- name: schema
-- The schema as text, for schema.sql.
select sql from sqlite_schema
where sql is not null and name not like 'sqlite_%'
order by case type when 'table' then 1 when 'index' then 2 else 3 end, tbl_name, name;
