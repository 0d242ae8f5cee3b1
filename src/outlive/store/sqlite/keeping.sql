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
-- A run of the same origin may have to know what this one has done to the world, and as long as one of them is kept it
-- can be forked: they are kept, and go, together. Parent and root are of one tree.
select
    case
        when run.phase = 'forgetting' then ''
        else coalesce((
            select judged.why
            from (
                select
                    kin.id <> run.id as other,
                    case
                        when kin.ended_at is null then 'a run that goes on'
                        when kin.id <> run.id and kin.ended_at > :now - coalesce((select value from json_each(:ages) where key = kin.status), :others_ms)
                            then 'a run of its origin that is kept'
                        when kin.imported_at > :now - coalesce((select value from json_each(:ages) where key = kin.status), :others_ms) then 'imported not long ago'
                        when exists (
                            select 1 from operation
                            where
                                operation.tenant = kin.tenant and operation.run_id = kin.id
                                and operation.status in ('pending', 'unknown')
                        ) then 'an operation in doubt'
                        when exists (
                            select 1 from inbox
                            where
                                inbox.tenant = kin.tenant and inbox.run_id = kin.id and inbox.taken_seq is null
                                and substr(inbox.topic, 1, 5) <> 'mail:'
                        ) then 'an unread message'
                        when exists (
                            select 1 from run as relative
                            where
                                relative.tenant = kin.tenant and relative.id in (kin.root, kin.parent)
                                and relative.ended_at is null
                        ) or exists (
                            select 1 from run as relative
                            where
                                relative.tenant = kin.tenant and relative.root = kin.root
                                and relative.parent is not null and relative.ended_at is null
                        ) or exists (
                            select 1 from run as relative
                            where
                                relative.tenant = kin.tenant and relative.rolls_back = kin.id
                                and relative.rolls_back is not null and relative.ended_at is null
                        ) then 'a run that goes on'
                        when exists (
                            select 1 from run as target
                            where target.tenant = kin.tenant and target.id = kin.rolls_back
                        ) then 'the run that it has rolled back'
                        else ''
                    end as why
                from (
                    select first.* from run as first where first.tenant = run.tenant and first.id = run.origin
                    union all
                    select forked.* from run as forked
                    where forked.tenant = run.tenant and forked.origin = run.origin and forked.origin <> forked.id
                ) as kin
            ) as judged
            where judged.why <> ''
            order by judged.other
            limit 1
        ), '')
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

-- name: lineage
-- All of the same origin as a run, but for itself.
select kin.id
from run as asked
join run as kin on kin.tenant = asked.tenant and kin.id = asked.origin
where asked.tenant = :tenant and asked.id = :run and kin.id <> asked.id
union all
select kin.id
from run as asked
join run as kin on kin.tenant = asked.tenant and kin.origin = asked.origin and kin.origin <> kin.id
where asked.tenant = :tenant and asked.id = :run and kin.id <> asked.id;

-- name: begin_with_lineage
-- The others of an origin, which nothing keeps either, are neither forked nor posted to any more.
update run set phase = 'forgetting' where tenant = :tenant and id = :kin and phase <> 'forgetting';

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

-- name: forget_keys
-- Those that have not changed for so long, the longest ago first; one whose operation may still get an outcome stays.
delete from business_key
where (tenant, key) in (
    select tenant, key from business_key
    where status not in ('open', 'unknown') and updated_at <= :now - :older_ms
    order by updated_at
    limit :most
);
