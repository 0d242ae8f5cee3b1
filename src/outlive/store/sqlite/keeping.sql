-- Duties, and how ended runs go. Names are those of the other stores.

-- name: enlist_duty
-- A duty that is known stays as it is.
insert into duty (name, next_at) values (:name, :now) on conflict do nothing;

-- name: take_duty
-- Only one that is due, as `duty_due` judges it, and that nobody is at.
update duty
set owner = :owner, token = :token, expires_at = :now + :lease_ms
where
    name = :name
    and (next_at <= :now or (name = 'telling' and exists (select 1 from notification where unrouted = 'new')))
    and (token is null or expires_at <= :now);

-- name: keep_duty
-- The lease is extended while the token is its own.
update duty set expires_at = :now + :lease_ms where name = :name and token = :token;

-- name: leave_duty
-- Due again later; what was done is told in words.
update duty
set owner = null, token = null, expires_at = null, next_at = :now + :after_ms, done_at = :now, report = :report
where name = :name and token = :token;

-- name: find_duties
-- All of them.
select name, next_at, owner, expires_at, done_at, report from duty order by name;

-- name: kept_for
-- Why a run that ended long ago stays; empty: nothing keeps it. One of which entries have gone already goes on going.
-- Parent and root are of one tree; a run of the same origin may have to know what this one has done to the world.
select
    case
        when run.phase = 'forgetting' then ''
        when run.imported_at > :now - :older_ms then 'imported not long ago'
        when exists (
            select 1 from operation
            where
                operation.tenant = run.tenant and operation.run_id = run.id
                and operation.status in ('pending', 'unknown')
        ) then 'an operation in doubt'
        when exists (
            select 1 from inbox where inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null
        ) then 'an unread message'
        when exists (
            select 1 from run as other
            where
                other.tenant = run.tenant and other.id in (run.root, run.parent, run.origin)
                and other.ended_at is null
        ) or exists (
            select 1 from run as other
            where
                other.tenant = run.tenant and other.root = run.root and other.parent is not null
                and other.ended_at is null
        ) or exists (
            select 1 from run as other
            where
                other.tenant = run.tenant and other.origin = run.origin and other.origin <> other.id
                and other.ended_at is null
        ) or exists (
            select 1 from run as other
            where
                other.tenant = run.tenant and other.rolls_back = run.id and other.rolls_back is not null
                and other.ended_at is null
        ) then 'a run that goes on'
        else ''
    end;

-- name: aged
-- Runs that ended long ago, with what keeps each. The word in braces is a statement of this file.
select run.tenant, run.id, run.ended_at, ({kept_for}) as why
from run
where
    run.status = :status and run.ended_at is not null and run.ended_at <= :now - :older_ms
    and (run.ended_at, run.tenant, run.id) > (:ended_at, :tenant, :run)
order by run.ended_at, run.tenant, run.id
limit :limit;

-- name: lock_forgettable
-- The same of one run, in the transaction that forgets it.
select ({kept_for}) as why
from run
where
    run.tenant = :tenant and run.id = :run and run.status = :status and run.ended_at is not null
    and run.ended_at <= :now - :older_ms;

-- name: first_left
-- The first entry that stays when so many go; no row: all go.
select seq from entry where tenant = :tenant and run_id = :run order by seq limit 1 offset :most;

-- name: blobs_to_drop
-- What the entries name that go.
select distinct lower(hex(blob)) from entry
where tenant = :tenant and run_id = :run and (:left is null or seq < :left) and blob is not null;

-- name: forget_entries
-- The oldest first: what says how the run ended is the last to go.
delete from entry where tenant = :tenant and run_id = :run and (:left is null or seq < :left);

-- name: begin_to_forget
-- Entries have gone and others are left: nothing is posted to it any more.
update run set phase = 'forgetting' where tenant = :tenant and id = :run;

-- name: forget_operations
-- What belongs to a run goes with it.
delete from operation where tenant = :tenant and run_id = :run;

-- name: forget_messages
-- What belongs to a run goes with it.
delete from inbox where tenant = :tenant and run_id = :run;

-- name: forget_divergences
-- What belongs to a run goes with it.
delete from divergence where tenant = :tenant and run_id = :run;

-- name: forget_votes
-- Before the approvals that say whose they are.
delete from vote
where tenant = :tenant and approval in (select id from approval where tenant = :tenant and run_id = :run);

-- name: forget_approvals
-- What belongs to a run goes with it.
delete from approval where tenant = :tenant and run_id = :run;

-- name: forget_deliveries
-- What belongs to a run goes with it.
delete from delivery
where notification in (select position from notification where tenant = :tenant and run_id = :run);

-- name: forget_notifications
-- What belongs to a run goes with it.
delete from notification where tenant = :tenant and run_id = :run;

-- name: forget_deltas
-- What belongs to a run goes with it.
delete from delta where tenant = :tenant and run_id = :run;

-- name: forget_run
-- The row goes last.
delete from run where tenant = :tenant and id = :run;

-- name: drop_blob
-- Only if no entry names it.
delete from blob
where
    tenant = :tenant and address = :address
    and not exists (select 1 from entry where entry.tenant = blob.tenant and entry.blob = blob.address);
