-- Every statement about runs. Decisions (which status may follow, what is poison) are not made here: a statement
-- compares and sets, reads a range, or tells what is due. `:now` is always given: one reading of the clock per commit.

-- name: clock
-- Milliseconds since 1970 by the database's clock.
select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer);

-- name: find_key
-- The digest key of a tenant.
select key from tenant where id = :tenant;

-- name: add_key
-- Keys never change: the first one stays.
insert into tenant (id, key, created_at) values (:tenant, :key, :now) on conflict do nothing;

-- name: add_run
-- A second start of the same id changes nothing.
insert into run (
    tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
    priority, ready_at, deadline_at, principal, purpose, identity, root, labels, pin, rolls_back
)
values (
    :tenant, :run, :agent, :version, 'ready', 0, :next_seq, :head, :now, :now, :input_digest, :run, :queue,
    :priority, :now, :now + :deadline_ms, :principal, :purpose, :identity, :run, :labels, :pin, :rolls_back
)
on conflict do nothing;

-- name: mark_forked
-- From here on the run asks for what its forks have done. No row changed means: it has not ended, nor is it paused.
update run set forked = 1
where
    tenant = :tenant and id = :parent
    and phase <> 'forgetting'
    and (ended_at is not null or (paused_at is not null and status <> 'running'));

-- name: add_fork
-- A run that begins where its history ends. A second fork of the same id changes nothing.
insert into run (
    tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
    priority, ready_at, deadline_at, principal, purpose, identity, root, labels, prologue_seq, window_seq, fork_of,
    fork_seq, repeat_effects, pin
)
values (
    :tenant, :run, :agent, :version, 'ready', :epoch, :next_seq, :head, :now, :now, :input_digest, :origin, :queue,
    :priority, :now, :now + :deadline_ms, :principal, :purpose, :identity, :run, :labels, :prologue_seq, :window_seq,
    :parent, :fork_seq, :repeat_effects, :pin
)
on conflict do nothing;

-- name: copy_entries
-- The history of a fork, as it is: the digests do not name the run. Blobs are shared by their address.
insert into entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
select
    tenant, :run, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
from entry
where tenant = :tenant and run_id = :parent and seq <= :fork_seq;

-- name: find_run
-- One row of a run.
select * from run where tenant = :tenant and id = :run;

-- name: find_rollbacks
-- The runs that roll one back, in the order in which they were started.
select * from run where tenant = :tenant and rolls_back = :run and rolls_back is not null order by created_at, id;

-- name: find_runs
-- Newest first; an empty parameter matches everything, and so do labels that cannot be read.
select * from run
where
    tenant = :tenant
    and created_at <= :latest and (created_at < :latest or id < :behind)
    and (:statuses = '[]' or status in (select value from json_each(:statuses)))
    and (:agent = '' or agent = :agent)
    and (:reason = '' or reason = :reason)
    and (:paused is null or (paused_at is not null) = :paused)
    and (
        :labels = '{}'
        or case
            when json_valid(run.labels) and json_type(run.labels) = 'object' then not exists (
                select 1 from json_each(:labels) as wanted
                where not exists (
                    select 1 from json_each(run.labels) as has where has.key = wanted.key and has.value = wanted.value
                )
            )
            else true
        end
    )
order by created_at desc, id desc
limit :limit;

-- name: add_entry
-- The primary key refuses a second entry at the same place.
insert into entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_blob
-- The same content under the same key is stored once.
insert into blob (tenant, address, payload, data_class, key_id, created_at)
values (:tenant, :address, :payload, :data_class, :key_id, :now)
on conflict do nothing;

-- name: append
-- Authority (epoch and token) and the end of the log, compared for equality. No row changed means: the lease is lost.
-- It sets no column that an index has, which would be written again for every entry.
update run
set
    next_seq = :next_seq,
    head = :head,
    updated_at = :now,
    lapses = case when :progress then 0 else lapses end,
    prologue_seq = case when :turn then coalesce(prologue_seq, :seq) else prologue_seq end,
    window_seq = case when :turn then :seq else window_seq end
where tenant = :tenant and id = :run and epoch = :epoch and token = :token and next_seq = :seq;

-- name: append_and_change
-- The same comparison; the status changes and the authority ends. A run that has ended keeps its status, and the time
-- and the reason of its end are not written over.
update run
set
    next_seq = :next_seq,
    head = :head,
    updated_at = :now,
    lapses = case when :progress then 0 else lapses end,
    prologue_seq = case when :turn then coalesce(prologue_seq, :seq) else prologue_seq end,
    window_seq = case when :turn then :seq else window_seq end,
    status = :status,
    reason = case when ended_at is null then :reason else reason end,
    detail = case when ended_at is null then :detail else detail end,
    wake_at = case when :status = 'waiting' then :wake_at end,
    ready_at = case when :status = 'ready' then :now end,
    paused_at = case
        when :paused is null then paused_at
        when :paused then coalesce(paused_at, :now)
    end,
    ended_at = coalesce(ended_at, case when :ended then :now end),
    token = null,
    owner = null,
    lease_ms = null,
    renewed_at = null,
    expires_at = null
where
    tenant = :tenant and id = :run and epoch = :epoch and token = :token and next_seq = :seq
    and (ended_at is null or status = :status);

-- name: take_message
-- The row stays, so that a second message with the sender's key is known.
update inbox set taken_seq = :seq
where id = :id and tenant = :tenant and run_id = :run and taken_seq is null;

-- name: put_operation
-- The record of an operation follows the entry of the same commit. One that was compensated stays so.
insert into operation (
    tenant, run_id, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at, updated_at,
    not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    business_key, shared_run, shared_operation
)
values (
    :tenant, :run, :id, :call, :tool, :effect, :key, :digest, :arguments, :status, :attempt, :epoch, :first_sent_at,
    :updated_at, :not_before, :outcome, :error, :how, :notes, :duplicates, :seq, :approval,
    :executed, :compensates, :business_key, :shared_run, :shared_operation
)
on conflict (tenant, id) do update set
    call = excluded.call,
    tool = excluded.tool,
    effect = excluded.effect,
    key = excluded.key,
    digest = excluded.digest,
    arguments = excluded.arguments,
    status = case when operation.compensated_by = '' then excluded.status else operation.status end,
    attempt = excluded.attempt,
    epoch = excluded.epoch,
    first_sent_at = excluded.first_sent_at,
    updated_at = excluded.updated_at,
    not_before = excluded.not_before,
    outcome = excluded.outcome,
    error = excluded.error,
    how = excluded.how,
    notes = excluded.notes,
    duplicates = excluded.duplicates,
    seq = excluded.seq,
    approval = excluded.approval,
    executed = excluded.executed,
    compensates = excluded.compensates,
    business_key = excluded.business_key,
    shared_run = excluded.shared_run,
    shared_operation = excluded.shared_operation
where operation.run_id = excluded.run_id;

-- name: compensate
-- An operation of the run that this one rolls back: another run has undone it. The first one to do so stays.
update operation set status = 'compensated', compensated_by = :id, updated_at = :now
where
    tenant = :tenant and id = :compensates and compensated_by = ''
    and run_id = (select rolls_back from run where tenant = :tenant and id = :run);

-- name: find_operation
-- One operation by its full id.
select * from operation where tenant = :tenant and id = :operation;

-- name: find_operations
-- The operations of a run, in the order of their first intent.
select * from operation where tenant = :tenant and run_id = :run order by position;

-- name: find_alike
-- What the runs of one origin have recorded of a tool with these arguments, or under this key.
select operation.*
from (
    select tenant, id from run where tenant = :tenant and id = :origin
    union all
    select tenant, id from run where tenant = :tenant and origin = :origin and origin <> id
) as lineage
cross join operation on operation.tenant = lineage.tenant and operation.run_id = lineage.id
where operation.tool = :tool and (operation.digest = :digest or operation.key = :key)
order by operation.first_sent_at, operation.position;

-- name: put_divergence
-- The last report of a build counts.
insert into divergence (tenant, run_id, code, report, at) values (:tenant, :run, :code, :report, :now)
on conflict (tenant, run_id, code) do update set report = excluded.report, at = excluded.at;

-- name: forgive
-- A person asked to try again: no build is known to fail, no lapse is counted.
delete from divergence where tenant = :tenant and run_id = :run;

-- name: add_notification
-- The same fact is told once.
insert into notification (tenant, run_id, seq, kind, id, role, facts, created_at)
values (:tenant, :run, :seq, :kind, :id, :role, :facts, :now)
on conflict do nothing;

-- name: find_divergences
-- Which builds cannot continue a run.
select code, report from divergence where tenant = :tenant and run_id = :run order by at, code;

-- name: window
-- What replay needs: the prologue, then the current turn. Its cost does not grow with the turns between them.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), lower(hex(entry.blob)), entry.data_class, entry.key_id, entry.digest
from run
cross join entry on entry.tenant = run.tenant and entry.run_id = run.id
    and entry.seq < coalesce(run.prologue_seq, run.next_seq)
left join blob on blob.tenant = entry.tenant and blob.address = entry.blob
where run.tenant = :tenant and run.id = :run
union all
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), lower(hex(entry.blob)), entry.data_class, entry.key_id, entry.digest
from run
cross join entry on entry.tenant = run.tenant and entry.run_id = run.id
    and entry.seq >= run.window_seq
left join blob on blob.tenant = entry.tenant and blob.address = entry.blob
where run.tenant = :tenant and run.id = :run
order by 1;

-- name: entries
-- A stretch of a log, with payloads.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), lower(hex(entry.blob)), entry.data_class, entry.key_id, entry.digest
from entry
left join blob on blob.tenant = entry.tenant and blob.address = entry.blob
where entry.tenant = :tenant and entry.run_id = :run and entry.seq > :after
order by entry.seq
limit :limit;

-- name: claimable_ready
-- Ready runs of one queue and agent, in the order in which they are due.
select *, ready_at as due from run
where
    status = 'ready' and paused_at is null and queue = :queue and agent = :agent
    and (deadline_at is null or deadline_at > :now - :grace_ms)
    and (:tenants is null or tenant in (select value from json_each(:tenants)))
    and (run.pin is null or run.pin = (select value from json_each(:versions) where key = run.agent))
    and not exists (
        select 1 from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = :code
    )
order by priority desc, ready_at
limit :limit;

-- name: timed
-- The queues, agents and priorities in which runs wait for a time, found by going down the index of timers: of those
-- that have come the most urgent are then read without the others, and none of those that have not.
with recursive timed (queue, agent, code, priority) as (
    select asked.value, served.key, served.value, 9223372036854775807
    from json_each(:serves) as served cross join json_each(:queues) as asked
    union all
    select timed.queue, timed.agent, timed.code, (
        select run.priority from run
        where
            run.status = 'waiting' and run.paused_at is null and run.wake_at is not null
            and run.queue = timed.queue and run.agent = timed.agent and run.priority < timed.priority
        order by run.priority desc limit 1
    )
    from timed where timed.priority is not null
)
select queue, agent, code, priority from timed where priority < 9223372036854775807;

-- name: claimable_by_timer
-- Waiting runs of one queue, agent and priority whose time has come.
select *, wake_at as due from run
where
    status = 'waiting' and paused_at is null and queue = :queue and agent = :agent and priority = :priority
    and wake_at <= :now
    and (deadline_at is null or deadline_at > :now - :grace_ms)
    and (:tenants is null or tenant in (select value from json_each(:tenants)))
    and (run.pin is null or run.pin = (select value from json_each(:versions) where key = run.agent))
    and not exists (
        select 1 from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = :code
    )
order by wake_at
limit :limit;

-- name: claimable_by_message
-- Waiting and blocked runs with an unread row. It starts from the unread rows: a wake-up is a condition, so that it
-- cannot be lost between a sender and a run that goes to sleep.
select run.*, unread.due
from (select tenant, run_id, min(at) as due from inbox where taken_seq is null group by tenant, run_id) as unread
cross join run on run.tenant = unread.tenant and run.id = unread.run_id
cross join json_each(:serves) as served on served.key = run.agent
where
    run.status in ('waiting', 'blocked') and run.paused_at is null
    and run.queue in (select value from json_each(:queues))
    and (run.deadline_at is null or run.deadline_at > :now - :grace_ms)
    and (:tenants is null or run.tenant in (select value from json_each(:tenants)))
    and (run.pin is null or run.pin = (select value from json_each(:versions) where key = run.agent))
    and not exists (
        select 1 from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = served.value
    )
order by run.priority desc, unread.due
limit :limit;

-- name: claimable_by_build
-- Runs of one agent that other builds could not continue and this one has not tried.
select *, updated_at as due from run
where
    status = 'blocked' and reason in ('diverged', 'undecodable') and paused_at is null and agent = :agent
    and queue in (select value from json_each(:queues))
    and (deadline_at is null or deadline_at > :now - :grace_ms)
    and (:tenants is null or tenant in (select value from json_each(:tenants)))
    and (run.pin is null or run.pin = (select value from json_each(:versions) where key = run.agent))
    and not exists (
        select 1 from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = :code
    )
order by priority desc, updated_at
limit :limit;

-- name: claimable_by_lapse
-- Running runs that this worker has watched and whose lease has expired.
select run.*, run.expires_at as due
from json_each(:watched) as watched
cross join run on run.tenant = json_extract(watched.value, '$[0]') and run.id = json_extract(watched.value, '$[1]')
cross join json_each(:serves) as served on served.key = run.agent
where
    run.epoch = json_extract(watched.value, '$[2]')
    and run.status = 'running' and run.expires_at <= :now and run.paused_at is null
    and run.queue in (select value from json_each(:queues))
    and (run.deadline_at is null or run.deadline_at > :now - :grace_ms)
    and (:tenants is null or run.tenant in (select value from json_each(:tenants)))
    and (run.pin is null or run.pin = (select value from json_each(:versions) where key = run.agent))
    and not exists (
        select 1 from divergence
        where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = served.value
    )
order by run.priority desc, run.expires_at
limit :limit;

-- name: claim
-- Epoch and next_seq show that nobody was faster; a lease may have been renewed since it was read, or the run forked. A
-- lapse is not counted where the run's owner was stalled by another run.
update run
set
    status = 'running',
    epoch = epoch + 1,
    token = :token,
    owner = :owner,
    lease_ms = :lease_ms,
    renewed_at = :now,
    expires_at = :now + :lease_ms,
    next_seq = :next_seq,
    head = :head,
    updated_at = :now,
    wake_at = null,
    ready_at = null,
    reason = '',
    detail = '',
    lapses = lapses + (
        :lapse
        and not exists (select 1 from worker where worker.owner = run.owner and worker.stalled_by not in ('', run.id))
    )
where
    tenant = :tenant and id = :run and epoch = :epoch and next_seq = :seq and status = :status and paused_at is null
    and forked = :forked
    and (status <> 'running' or expires_at <= :now)
returning lapses;

-- name: control
-- A claim that leaves the status as it is; only a running run has a lease. `:only` (null: any) and `:unless_live` say
-- which runs are left alone, decided here because they may have changed since somebody read them.
update run
set
    epoch = epoch + 1,
    token = :token,
    owner = case status when 'running' then :owner end,
    lease_ms = case status when 'running' then :lease_ms end,
    renewed_at = case status when 'running' then :now end,
    expires_at = case status when 'running' then :now + :lease_ms end,
    next_seq = :next_seq,
    head = :head,
    updated_at = :now
where
    tenant = :tenant and id = :run and epoch = :epoch and next_seq = :seq
    and (:only is null or status in (select value from json_each(:only)))
    and (not :unless_live or status <> 'running' or expires_at <= :now);

-- name: find_authority
-- The row, if epoch and token are still the caller's.
select * from run where tenant = :tenant and id = :run and epoch = :epoch and token = :token;

-- name: renew
-- One authority. A run that does not run has no lease to extend, but it may still be ours.
update run
set
    renewed_at = case status when 'running' then :now end,
    expires_at = case status when 'running' then :now + :lease_ms end,
    lease_ms = case status when 'running' then :lease_ms end
where tenant = :tenant and id = :run and epoch = :epoch and token = :token;

-- name: has_unread
-- Whether something waits in a run's inbox.
select exists (select 1 from inbox where tenant = :tenant and run_id = :run and taken_seq is null);

-- name: see_worker
-- The sign of life that comes with a renewal, or with a look; with it, whether and since when the worker is stalled,
-- and how far its clock is behind.
update worker
set seen_at = :now, stalled_at = :now - :stalled_ms, stalled_by = :stalled_by, skew_ms = :skew_ms
where owner = :owner;

-- name: put_worker
-- An announcement, or a new one of the same worker, which has begun when it first announced itself.
insert into worker (owner, pid, serves, versions, started_at, seen_at, skew_ms)
values (:owner, :pid, :serves, :versions, coalesce(nullif(:started_at, 0), :now), :now, :skew_ms)
on conflict (owner) do update set
    pid = excluded.pid, serves = excluded.serves, versions = excluded.versions, seen_at = excluded.seen_at,
    skew_ms = excluded.skew_ms;

-- name: drop_worker
-- A worker that leaves in good order.
delete from worker where owner = :owner;

-- name: drop_silent_workers
-- Workers that were killed never leave: their rows go a day after the last sign of life.
delete from worker where seen_at < :now - 86400000;

-- name: find_workers
-- Who gave a sign of life since.
select * from worker where seen_at >= :since order by started_at, owner;

-- name: overdue
-- Running runs that were not renewed for a third of their lease.
select tenant, id, epoch, renewed_at, lease_ms from run
where status = 'running' and renewed_at + lease_ms / 3 <= :now
order by expires_at
limit 10 * :most;

-- name: past_deadline
-- Runs that have not ended in time and have no owner who could end them: those that nobody could claim at once, others
-- when their grace is over.
select tenant, id from run
where
    deadline_at <= :now and ended_at is null
    and (status = 'blocked' or paused_at is not null or deadline_at <= :now - :grace_ms)
    and (status <> 'running' or expires_at <= :now)
order by deadline_at
limit :most;

-- name: stranded
-- Runs for which something must be done that no live worker could do: ready ones that some builds could not continue
-- (none of the others is there to take them any more), those that are being cancelled, and those that were asked to end.
select lying.tenant, lying.id, lying.reason
from (
    select * from (
        select tenant, id, agent, pin, reason from run
        where status = 'ready' and reason = 'diverged' and paused_at is null
        order by ready_at
        limit :most
    ) as lying
    union all
    select * from (
        select tenant, id, agent, pin, reason from run
        where reason = 'cancelling' and ended_at is null and paused_at is null
        limit 10 * :most
    ) as lying
    union all
    select * from (
        select run.tenant, run.id, run.agent, run.pin, 'asked'
        from (select distinct tenant, run_id from inbox where taken_seq is null and topic = 'control') as unread
        cross join run on run.tenant = unread.tenant and run.id = unread.run_id
        where run.status in ('ready', 'waiting') and run.paused_at is null
        limit 10 * :most
    ) as lying
) as lying
where not exists (
    select 1 from worker cross join json_each(worker.serves) as can
    where
        worker.seen_at >= :now - 2 * :lease_ms and can.key = lying.agent
        and (lying.pin is null or lying.pin = (select value from json_each(worker.versions) where key = lying.agent))
        and not exists (
            select 1 from divergence
            where divergence.tenant = lying.tenant and divergence.run_id = lying.id and divergence.code = can.value
        )
);

-- name: sent
-- Runs with something unread that this worker drives; then those to be looked after (`late`), which have ended, or are
-- blocked or paused and were asked to end.
select
    run.tenant, run.id,
    run.ended_at is not null or ((run.paused_at is not null or run.status = 'blocked') and unread.asked) as late
from (select tenant, run_id, max(topic = 'control') as asked from inbox where taken_seq is null group by tenant, run_id)
    as unread
cross join run on run.tenant = unread.tenant and run.id = unread.run_id
where late or (run.status = 'running' and run.owner = :owner)
order by late
limit 100 * :most;

-- name: next_due
-- How long until the next timer of a queue and agent that are served, or the next deadline. One that has come is claimable, or
-- needs attention, or is nothing that this worker could do: it must not make it look again and again.
select min(due) - :now
from (
    select (
        select min(run.wake_at) from run
        where
            run.status = 'waiting' and run.paused_at is null and run.queue = timed.queue and run.agent = timed.agent
            and run.priority = timed.priority and run.wake_at is not null and run.wake_at > :now
    ) as due
    from ({timed}) as timed
    union all
    select min(deadline_at) from run where deadline_at is not null and ended_at is null and deadline_at > :now
) as coming;

-- name: duty_due
-- Duties that are due and that nobody is at. Telling is due whenever something new has to be told, and stalls while a
-- worker is stuck, whatever their time: conditions, for which nobody who writes has to touch a duty's row.
select name from duty
where
    (
        next_at <= :now
        or (name = 'telling' and exists (select 1 from notification where unrouted = 'new'))
        or (
            name = 'stalls'
            and exists (select 1 from worker where stalled_at is not null and seen_at > :now - 60000)
        )
    )
    and (token is null or expires_at <= :now)
order by name;

-- name: look
-- All of the above for one worker. Words in braces are statements of this file; in them what is asked for of one agent,
-- queue and priority is asked of each that is `served`, one row is enough, and without a time it is the database's.
select
    :now as now,
    case
        when exists (
            select 1
            from (
                select agent.key as agent, agent.value as code, asked.value as queue
                from json_each(:serves) as agent cross join json_each(:queues) as asked
            ) as served
            where exists ({claimable_ready})
        ) then true
        when exists (select 1 from ({timed}) as served where exists ({claimable_by_timer})) then true
        when exists (
            select 1 from (select key as agent, value as code from json_each(:serves)) as served
            where exists ({claimable_by_build})
        ) then true
        else exists ({claimable_by_message})
    end as claimable,
    ({next_due}) as due_ms,
    (select json_group_array(json_array(tenant, id, epoch, renewed_at, lease_ms)) from ({overdue}) as overdue) as overdue,
    (select json_group_array(json_array(tenant, id)) from ({past_deadline}) as past) as past_deadline,
    (select json_group_array(json_array(tenant, id, reason)) from ({stranded}) as stranded) as stranded,
    (select json_group_array(json_array(tenant, id, late)) from ({sent}) as sent) as sent,
    (select json_group_array(name) from ({duty_due}) as due) as duties;

-- name: add_message
-- No row is added for a run that does not exist or is being forgotten, or for a key that the sender has used. The run's
-- row is not touched.
insert into inbox (tenant, run_id, topic, sender_key, body, at)
select :tenant, :run, :topic, :sender_key, :body, :now
where exists (select 1 from run where tenant = :tenant and id = :run and phase <> 'forgetting')
on conflict do nothing;

-- name: run_exists
-- Tells an unknown run from a known message.
select exists (select 1 from run where tenant = :tenant and id = :run and phase <> 'forgetting');

-- name: unread
-- All rows that no append has taken, in order of arrival.
select topic, sender_key, body, id, at from inbox
where tenant = :tenant and run_id = :run and taken_seq is null
order by id;

-- name: ask_approval
-- In the append that records what is proposed. Its id is drawn anew each time.
insert into approval (
    tenant, run_id, id, operation, tool, shown, arguments, proposed, policy, role, quorum, requester, asked_at,
    expires_at, status
)
values (
    :tenant, :run, :id, :operation, :tool, :shown, :arguments, :proposed, :policy, :role, :quorum, :requester, :now,
    :expires_at, 'asked'
);

-- name: use_approval
-- The first write of an append that depends on it: no row changed means that the approval is not good for this, or the
-- run not ours. One operation may use it more than once, until it expires: when it is known not to have acted.
update approval set used_at = coalesce(used_at, :now)
where
    tenant = :tenant and id = :approval and run_id = :run and operation = :operation and executed = :executed
    and policy = :policy and status = 'approved' and expires_at > :now
    and exists (
        select 1 from run where id = :run and tenant = :tenant and epoch = :epoch and token = :token and next_seq = :seq
    );

-- name: withdraw_approvals
-- The run has ended: what it has open is nobody's to decide any more.
update approval set status = 'withdrawn', why = 'the run has ended', decided_at = :now
where tenant = :tenant and run_id = :run and (status = 'asked' or (status = 'approved' and used_at is null));

-- name: find_approval
-- One approval by its full id.
select * from approval where tenant = :tenant and id = :id;

-- name: find_approvals
-- Oldest first; an empty parameter matches everything.
select * from approval
where
    tenant = :tenant
    and (:statuses = '[]' or status in (select value from json_each(:statuses)))
    and (:role = '' or role = :role)
    and (:run = '' or run_id = :run)
order by asked_at, id
limit :limit;

-- name: find_votes
-- What was done about an approval, in order.
select * from vote where tenant = :tenant and approval = :id order by number;

-- name: decide_approval
-- What a vote makes of an approval, if it is as it was judged. One that is asked for cannot be decided after its time.
update approval
set
    status = :status,
    votes = votes + 1,
    executed = :executed,
    edited = :edited_arguments,
    why = :reason,
    decided_at = case when :status = status then decided_at else :now end
where
    tenant = :tenant and id = :id and status = :before and votes = :votes and used_at is null
    and (status <> 'asked' or expires_at > :now);

-- name: add_vote
-- What one person did, in the order of the acts.
insert into vote (tenant, approval, number, who, act, role, place, to_whom, why, digest, edited, nonce, at)
values (
    :tenant, :id, :votes + 1, :who, :act, :role, :place, :to_whom, :why, :digest, :edited, :nonce, :now
);

-- name: tell_run
-- A decision wakes the run that waits for it.
insert into inbox (tenant, run_id, topic, sender_key, body, at)
select approval.tenant, approval.run_id, :topic, :sender_key, :body, :now from approval
where approval.tenant = :tenant and approval.id = :id and :decided
on conflict do nothing;

-- name: end_approval
-- It does not count any more. Nobody can say that its time is over before it is.
update approval set status = :status, why = :why, decided_at = :now
where
    tenant = :tenant and id = :id and status in ('asked', 'approved')
    and (:status <> 'expired' or expires_at <= :now);

-- name: take_key
-- It is taken if it is nobody's, free, or open for this very operation. No row changed means that it is another's.
insert into business_key (
    tenant, key, shown, tool, digest, run_id, operation, status, created_at, updated_at
)
values (:tenant, :key, :shown, :tool, :digest, :of_run, :operation, 'open', :now, :now)
on conflict (tenant, key) do update set
    shown = excluded.shown,
    tool = excluded.tool,
    digest = excluded.digest,
    run_id = excluded.run_id,
    operation = excluded.operation,
    status = excluded.status,
    outcome = null,
    error = '',
    changes = business_key.changes + 1,
    updated_at = excluded.updated_at
where
    business_key.status = 'free'
    or (
        business_key.run_id = excluded.run_id and business_key.operation = excluded.operation
        and business_key.status in ('open', 'unknown')
    );

-- name: wake_waiters
-- Who waits for a business key is sent a message in the commit in which it changes, if it will: see `mark_key`. Whoever
-- writes that knows what of the same run waits for it.
insert into inbox (tenant, run_id, topic, sender_key, body, at)
select held.tenant, run.id, :topic, held.key || ':' || held.created_at || ':' || held.changes, '{}', :now
from business_key as held
cross join json_each(held.waiters) as waiter
cross join run on run.tenant = held.tenant and run.id = waiter.value and run.ended_at is null
where
    run.id <> :run and held.tenant = :tenant and held.key = :key
    and (
        (
            held.run_id = :of_run and held.operation = :operation
            and held.status <> :status and held.status <> 'compensated'
        )
        or (held.status = 'free' and :status <> 'free')
    )
on conflict do nothing;

-- name: mark_key
-- What became of a business key is said by the operation that has it, or by one that turns out to have acted under a
-- free one. What was compensated stays so. Not everybody
-- who says it knows the text.
insert into business_key (
    tenant, key, shown, tool, digest, run_id, operation, status, outcome, error, created_at, updated_at
)
values (
    :tenant, :key, :shown, :tool, :digest, :of_run, :operation, :status, :outcome, :error, :now, :now
)
on conflict (tenant, key) do update set
    shown = case when excluded.shown = '' then business_key.shown else excluded.shown end,
    tool = excluded.tool,
    digest = excluded.digest,
    run_id = excluded.run_id,
    operation = excluded.operation,
    status = excluded.status,
    outcome = excluded.outcome,
    error = excluded.error,
    waiters = '[]',
    changes = business_key.changes + 1,
    updated_at = excluded.updated_at
where
    (
        business_key.run_id = excluded.run_id and business_key.operation = excluded.operation
        and business_key.status <> excluded.status and business_key.status <> 'compensated'
    )
    or (business_key.status = 'free' and excluded.status <> 'free');

-- name: compensate_key
-- With the operation that has it, if this append has compensated that. Nobody waits for one that has succeeded.
update business_key set status = 'compensated', changes = changes + 1, updated_at = :now
where
    tenant = :tenant and operation = :compensates and status <> 'compensated'
    and key = (
        select business_key from operation
        where tenant = :tenant and id = :compensates and compensated_by = :id and business_key <> ''
    );

-- name: await_key
-- The run is woken when the key changes. No row changed means that it has changed since it was read, or is settled.
update business_key
set
    waiters = case
        when exists (select 1 from json_each(waiters) where value = :run) then waiters
        else json_insert(waiters, '$[#]', :run)
    end
where tenant = :tenant and key = :key and changes = :changes and status in ('open', 'unknown');

-- name: find_business_key
-- One by the digest of its text.
select * from business_key where tenant = :tenant and key = :key;

-- name: find_business_keys
-- In the order of their digests, behind one; an empty parameter matches everything.
select * from business_key
where
    tenant = :tenant and key > :after
    and (:statuses = '[]' or status in (select value from json_each(:statuses)))
    and (:text = '' or instr(shown, :text) > 0)
    and (:run = '' or run_id = :run)
    and (not :awaited or waiters <> '[]')
order by key
limit :limit;
