-- Duties, and how ended runs go. Names are those of the other stores; words in braces are as in queries.sql.

-- name: enlist_duty
-- A duty that is known stays as it is. Differs: all at once.
insert into {schema}.duty (name, next_at)
select name, {moment} from unnest(%(names)s::text[]) as name
order by name
on conflict do nothing;

-- name: take_duty
-- Only one that is due, as `duty_due` judges it, and that nobody is at.
update {schema}.duty
set owner = %(owner)s, token = %(token)s, expires_at = {moment} + %(lease_ms)s::bigint
where
    name = %(name)s
    and (next_at <= {moment} or (name = 'telling' and exists (select 1 from {schema}.notification where unrouted = 'new')))
    and (token is null or expires_at <= {moment})
returning name;

-- name: keep_duty
-- The lease is extended while the token is its own.
update {schema}.duty set expires_at = {moment} + %(lease_ms)s::bigint
where name = %(name)s and token = %(token)s
returning name;

-- name: leave_duty
-- Due again later; what was done is told in words.
update {schema}.duty
set
    owner = null, token = null, expires_at = null, next_at = {moment} + %(after_ms)s::bigint, done_at = {moment},
    report = %(report)s
where name = %(name)s and token = %(token)s
returning name;

-- name: find_duties
-- All of them.
select name, next_at, owner, expires_at, done_at, report from {schema}.duty order by name;

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
                        when kin.id <> run.id and kin.ended_at > {now} - coalesce((%(ages)s::json ->> kin.status)::bigint, %(others_ms)s::bigint)
                            then 'a run of its origin that is kept'
                        when kin.imported_at > {now} - coalesce((%(ages)s::json ->> kin.status)::bigint, %(others_ms)s::bigint) then 'imported not long ago'
                        when exists (
                            select 1 from {schema}.operation
                            where
                                operation.tenant = kin.tenant and operation.run_id = kin.id
                                and operation.status in ('pending', 'unknown')
                        ) then 'an operation in doubt'
                        when exists (
                            select 1 from {schema}.inbox
                            where
                                inbox.tenant = kin.tenant and inbox.run_id = kin.id and inbox.taken_seq is null
                                and substr(inbox.topic, 1, 5) <> 'mail:'
                        ) then 'an unread message'
                        when exists (
                            select 1 from {schema}.run as relative
                            where
                                relative.tenant = kin.tenant and relative.id in (kin.root, kin.parent)
                                and relative.ended_at is null
                        ) or exists (
                            select 1 from {schema}.run as relative
                            where
                                relative.tenant = kin.tenant and relative.root = kin.root
                                and relative.parent is not null and relative.ended_at is null
                        ) or exists (
                            select 1 from {schema}.run as relative
                            where
                                relative.tenant = kin.tenant and relative.rolls_back = kin.id
                                and relative.rolls_back is not null and relative.ended_at is null
                        ) then 'a run that goes on'
                        when exists (
                            select 1 from {schema}.run as target
                            where target.tenant = kin.tenant and target.id = kin.rolls_back
                        ) then 'the run that it has rolled back'
                        else ''
                    end as why
                from (
                    select first.* from {schema}.run as first where first.tenant = run.tenant and first.id = run.origin
                    union all
                    select forked.* from {schema}.run as forked
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
from {schema}.run
where
    run.status = %(status)s and run.ended_at is not null and run.ended_at <= {now} - %(older_ms)s::bigint
    and (run.ended_at, run.tenant, run.id) > (%(ended_at)s, %(tenant)s, %(run)s)
order by run.ended_at, run.tenant, run.id
limit %(limit)s;

-- name: lineage
-- All of the same origins as some runs. Differs: of all runs at once; kept from all others until this transaction ends, so
-- that nobody forks one of them meanwhile. One that somebody is just writing, forking or posting to is left out.
select run.tenant, run.id
from (
    select distinct kin.tenant, kin.id
    from json_to_recordset(%(runs)s::json) as given (tenant text, run text)
    join {schema}.run as asked on asked.tenant = given.tenant and asked.id = given.run
    cross join lateral (
        select first.tenant, first.id from {schema}.run as first
        where first.tenant = asked.tenant and first.id = asked.origin
        union all
        select forked.tenant, forked.id from {schema}.run as forked
        where forked.tenant = asked.tenant and forked.origin = asked.origin and forked.origin <> forked.id
    ) as kin
) as kin
join {schema}.run on run.tenant = kin.tenant and run.id = kin.id
order by run.tenant, run.id
for update of run skip locked;

-- name: begin_with_lineage
-- The others of an origin, which nothing keeps either, are neither forked nor posted to any more.
update {schema}.run set phase = 'forgetting'
from json_to_recordset(%(kin)s::json) as given (tenant text, run text)
where run.tenant = given.tenant and run.id = given.run and run.phase <> 'forgetting';

-- name: lock_forgettable
-- The same of some runs, kept from all others until this transaction ends. One that somebody is just writing or posting
-- to is left out. Differs: all at once, with their rows locked.
select
    run.tenant, run.id, run.ended_at, ({kept_for}) as why,
    array(
        select forked.id from {schema}.run as forked
        where forked.tenant = run.tenant and forked.origin = run.origin and forked.origin <> forked.id
    ) || array(
        select first.id from {schema}.run as first where first.tenant = run.tenant and first.id = run.origin
    ) as lineage
from json_to_recordset(%(runs)s::json) as given (tenant text, run text)
join {schema}.run on run.tenant = given.tenant and run.id = given.run
where run.status = %(status)s and run.ended_at is not null and run.ended_at <= {now} - %(older_ms)s::bigint
order by run.tenant, run.id
for update of run skip locked;

-- name: forget_entries
-- The oldest first: what says how a run ended is the last to go. Differs: of all runs at once; by where the rows lie, so
-- that no planner reads the table for it. An entry is never moved.
delete from {schema}.entry
where ctid = any(array(
    select there.ctid
    from json_to_recordset(%(runs)s::json) as given (tenant text, run text)
    cross join lateral (
        select entry.ctid, entry.seq from {schema}.entry
        where entry.tenant = given.tenant and entry.run_id = given.run
        order by entry.seq
        limit %(most)s
    ) as there
    order by given.tenant collate "C", given.run collate "C", there.seq
    limit %(most)s
))
returning entry.tenant, entry.run_id, encode(entry.blob, 'hex') as blob;

-- name: forget_runs
-- A run without entries goes, with all that belongs to it. To one that has lost some, and has some left, nothing is
-- posted any more. Differs: of all runs at once.
with given as materialized (
    select
        given.tenant, given.run,
        exists (
            select 1 from {schema}.entry where entry.tenant = given.tenant and entry.run_id = given.run
        ) as has_left,
        given.begun
    from json_to_recordset(%(runs)s::json) as given (tenant text, run text, begun boolean)
),
operations as (
    delete from {schema}.operation using given
    where operation.tenant = given.tenant and operation.run_id = given.run and not given.has_left
),
messages as (
    delete from {schema}.inbox using given
    where inbox.tenant = given.tenant and inbox.run_id = given.run and not given.has_left
),
divergences as (
    delete from {schema}.divergence using given
    where divergence.tenant = given.tenant and divergence.run_id = given.run and not given.has_left
),
approvals as (
    delete from {schema}.approval using given
    where approval.tenant = given.tenant and approval.run_id = given.run and not given.has_left
    returning approval.tenant, approval.id
),
votes as (
    delete from {schema}.vote using approvals
    where vote.tenant = approvals.tenant and vote.approval = approvals.id
),
notifications as (
    delete from {schema}.notification using given
    where notification.tenant = given.tenant and notification.run_id = given.run and not given.has_left
    returning notification.position
),
deliveries as (
    delete from {schema}.delivery using notifications where delivery.notification = notifications.position
),
deltas as (
    delete from {schema}.delta using given
    where delta.tenant = given.tenant and delta.run_id = given.run and not given.has_left
),
marked as (
    update {schema}.run set phase = 'forgetting' from given
    where run.tenant = given.tenant and run.id = given.run and given.has_left and given.begun
),
gone as (
    delete from {schema}.run using given
    where run.tenant = given.tenant and run.id = given.run and not given.has_left
)
select tenant, run, has_left from given;

-- name: lock_blobs
-- Whoever is just naming one of them is waited for, and whoever will has to wait.
select blob.address
from json_to_recordset(%(blobs)s::json) as given (tenant text, address text)
join {schema}.blob on blob.tenant = given.tenant and blob.address = decode(given.address, 'hex')
order by blob.tenant, blob.address
for update of blob;

-- name: drop_blob
-- Only if no entry names it. Differs: a statement of its own behind the locks, so that it sees what they waited for.
delete from {schema}.blob
using json_to_recordset(%(blobs)s::json) as given (tenant text, address text)
where
    blob.tenant = given.tenant and blob.address = decode(given.address, 'hex')
    and not exists (
        select 1 from {schema}.entry where entry.tenant = blob.tenant and entry.blob = blob.address
    )
returning blob.tenant;

-- name: forget_keys
-- Those that have not changed for so long, the longest ago first; one whose operation may still get an outcome stays.
-- Differs: one that somebody is just taking is left.
delete from {schema}.business_key
using (
    select tenant, key from {schema}.business_key
    where status not in ('open', 'unknown') and updated_at <= {moment} - %(older_ms)s::bigint
    order by updated_at
    limit %(most)s
    for update skip locked
) as old
where business_key.tenant = old.tenant and business_key.key = old.key
returning {durably};
