-- What a survey of the whole store reads, page by page. Names are those of the other stores.

-- name: open_runs
-- Runs that have not ended, each with what decides whether it can be claimed.
select
    run.*,
    exists (
        select 1 from inbox where inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null
    ) as unread,
    exists (
        select 1 from inbox
        where
            inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null and inbox.topic = 'control'
    ) as asked,
    (
        select json_group_array(code) from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id
    ) as diverged
from run
where run.ended_at is null and (run.tenant, run.id) > (:tenant, :run)
order by run.tenant, run.id
limit :limit;

-- name: runs_of
-- All runs of a tenant, but for those that are being forgotten.
select * from run where tenant = :tenant and id > :run and phase <> 'forgetting' order by id limit :limit;

-- name: imported
-- Whether the run came from another store, without its approvals.
select 1 from run where tenant = :tenant and id = :run and imported_at is not null;

-- name: approvals_of_run
-- In the order in which they were asked for.
select * from approval where tenant = :tenant and run_id = :run order by asked_at, id;

-- name: votes_of_run
-- What was done about each of them, in order.
select vote.*
from approval
join vote on vote.tenant = approval.tenant and vote.approval = approval.id
where approval.tenant = :tenant and approval.run_id = :run
order by vote.approval, vote.number;

-- name: misclassed
-- Blobs that were stored under another class or key than the entry that names them.
select entry.seq, lower(hex(entry.blob)) from entry
join blob on blob.tenant = entry.tenant and blob.address = entry.blob
where
    entry.tenant = :tenant and entry.run_id = :run and entry.blob is not null
    and (blob.data_class <> entry.data_class or blob.key_id <> entry.key_id)
order by entry.seq;

-- name: unnamed_blobs
-- Blobs without an entry.
select blob.tenant, lower(hex(blob.address)), '', -1 from blob
where
    (blob.tenant, blob.address) > (:tenant, :address)
    and not exists (select 1 from entry where entry.tenant = blob.tenant and entry.blob = blob.address)
order by blob.tenant, blob.address
limit :limit;

-- name: missing_blobs
-- Entries without their blob.
select entry.tenant, lower(hex(entry.blob)), entry.run_id, entry.seq from entry
where
    entry.blob is not null
    and (entry.tenant, entry.blob, entry.run_id, entry.seq) > (:tenant, :address, :run, :seq)
    and not exists (select 1 from blob where blob.tenant = entry.tenant and blob.address = entry.blob)
order by entry.tenant, entry.blob, entry.run_id, entry.seq
limit :limit;

-- name: homeless
-- Runs that rows speak of and that are not there.
select distinct run_id, 'entry' as place from entry
where entry.tenant = :tenant and not exists (select 1 from run where run.tenant = entry.tenant and run.id = entry.run_id)
union all
select distinct run_id, 'operation' from operation
where
    operation.tenant = :tenant
    and not exists (select 1 from run where run.tenant = operation.tenant and run.id = operation.run_id)
order by 1, 2
limit :limit;
