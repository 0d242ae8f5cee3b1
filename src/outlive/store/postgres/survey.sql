-- What a survey of the whole store reads, page by page. Names are those of the other stores.

-- name: open_runs
-- Runs that have not ended, each with what decides whether it can be claimed.
select
    run.*,
    exists (
        select 1 from {schema}.inbox
        where inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null
    ) as unread,
    exists (
        select 1 from {schema}.inbox
        where
            inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null and inbox.topic = 'control'
    ) as asked,
    (
        select coalesce(json_agg(code), '[]') from {schema}.divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id
    ) as diverged
from {schema}.run
where run.ended_at is null and (run.tenant, run.id) > (%(tenant)s, %(run)s)
order by run.tenant, run.id
limit %(limit)s;

-- name: runs_of
-- All runs of a tenant, but for those that are being forgotten.
select * from {schema}.run
where tenant = %(tenant)s and id > %(run)s and phase <> 'forgetting'
order by id
limit %(limit)s;

-- name: imported
-- Whether the run came from another store, without its approvals.
select 1 from {schema}.run where tenant = %(tenant)s and id = %(run)s and imported_at is not null;

-- name: approvals_of_run
-- In the order in which they were asked for.
select * from {schema}.approval where tenant = %(tenant)s and run_id = %(run)s order by asked_at, id;

-- name: votes_of_run
-- What was done about each of them, in order.
select vote.*
from {schema}.approval
join {schema}.vote on vote.tenant = approval.tenant and vote.approval = approval.id
where approval.tenant = %(tenant)s and approval.run_id = %(run)s
order by vote.approval, vote.number;

-- name: misclassed
-- Blobs that were stored under another class or key than the entry that names them.
select entry.seq, encode(entry.blob, 'hex') from {schema}.entry
join {schema}.blob on blob.tenant = entry.tenant and blob.address = entry.blob
where
    entry.tenant = %(tenant)s and entry.run_id = %(run)s and entry.blob is not null
    and (blob.data_class <> entry.data_class or blob.key_id <> entry.key_id)
order by entry.seq;

-- name: unnamed_blobs
-- Blobs without an entry.
select blob.tenant, encode(blob.address, 'hex'), '', -1 from {schema}.blob
where
    (blob.tenant, blob.address) > (%(tenant)s, decode(%(address)s, 'hex'))
    and not exists (select 1 from {schema}.entry where entry.tenant = blob.tenant and entry.blob = blob.address)
order by blob.tenant, blob.address
limit %(limit)s;

-- name: missing_blobs
-- Entries without their blob.
select entry.tenant, encode(entry.blob, 'hex'), entry.run_id, entry.seq from {schema}.entry
where
    entry.blob is not null
    and (entry.tenant, entry.blob, entry.run_id, entry.seq)
    > (%(tenant)s, decode(%(address)s, 'hex'), %(run)s, %(seq)s)
    and not exists (select 1 from {schema}.blob where blob.tenant = entry.tenant and blob.address = entry.blob)
order by entry.tenant, entry.blob, entry.run_id, entry.seq
limit %(limit)s;

-- name: homeless
-- Runs that rows speak of and that are not there.
select distinct run_id, 'entry' as place from {schema}.entry
where
    entry.tenant = %(tenant)s
    and not exists (select 1 from {schema}.run where run.tenant = entry.tenant and run.id = entry.run_id)
union all
select distinct run_id, 'operation' from {schema}.operation
where
    operation.tenant = %(tenant)s
    and not exists (select 1 from {schema}.run where run.tenant = operation.tenant and run.id = operation.run_id)
order by 1, 2
limit %(limit)s;
