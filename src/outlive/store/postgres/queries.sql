-- Every statement about runs. Decisions (which status may follow, what is poison) are not made here: a statement
-- compares and sets, reads a range, or tells what is due. Names are those of the other stores.
--
-- Written in for braces when they are loaded: `{schema}`; `{now}`, the time given or that of the database as the
-- statement began; `{moment}`, the same as it is reached, after waiting for locks; `{durably}`, which makes the commit
-- reach the disk whatever the connection was set to. Rows go in as JSON, one parameter for each kind of row: that is
-- cheaper than one array for each column.
--
-- A write is one statement and one round trip: `append`, `claim`, `add_run` and `renew` begin it with common table
-- expressions, and those that read `accepted` (add_entry, add_blob, put_operation, take_message, forgive,
-- put_divergence, add_notification) are added where there is something for them to do; connection.sql has how it ends.

-- name: clock
-- Milliseconds since 1970 by the database's clock.
select (extract(epoch from clock_timestamp()) * 1000)::bigint;

-- name: find_key
-- The digest key of a tenant.
select key from {schema}.tenant where id = %(tenant)s;

-- name: add_key
-- Keys never change: the first one stays.
insert into {schema}.tenant (id, key, created_at) values (%(tenant)s, %(key)s, {moment})
on conflict do nothing
returning {durably};

-- name: add_run
-- A second start of the same id changes nothing. Differs: the beginning of one statement.
with accepted as (
    insert into {schema}.run (
        tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
        priority, ready_at, deadline_at, principal, purpose, identity, root, labels, pin, rolls_back
    )
    select
        %(tenant)s, %(run)s, %(agent)s, %(version)s, 'ready', 0, %(next_seq)s, %(head)s, at, at, %(input_digest)s,
        %(run)s, %(queue)s, %(priority)s, at, at + %(deadline_ms)s::bigint, %(principal)s, %(purpose)s,
        %(identity)s, %(run)s, %(labels)s, %(pin)s, %(rolls_back)s
    from (select {moment} as at) as moment
    on conflict do nothing
    returning *, id as run, 1::bigint as place, created_at as at, 0::bigint as seq, {durably}
);

-- name: mark_forked
-- From here on the run asks for what its forks have done. No row changed means: it has not ended, nor is it paused.
-- Differs: the beginning of one statement. It locks the row, and judges it as it is then.
with marked as (
    update {schema}.run set forked = 1
    where
        tenant = %(tenant)s and id = %(parent)s
        and phase <> 'forgetting'
        and (ended_at is not null or (paused_at is not null and status <> 'running'))
    returning id, {durably}
);

-- name: add_fork
-- A run that begins where its history ends. A second fork of the same id changes nothing. Differs: a part of one
-- statement, which does nothing where no run was marked.
insert into {schema}.run (
    tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
    priority, ready_at, deadline_at, principal, purpose, identity, root, labels, prologue_seq, window_seq, fork_of,
    fork_seq, repeat_effects, pin
)
select
    %(tenant)s, %(run)s, %(agent)s, %(version)s, 'ready', %(epoch)s, %(next_seq)s, %(head)s, at, at, %(input_digest)s,
    %(origin)s, %(queue)s, %(priority)s, at, at + %(deadline_ms)s::bigint, %(principal)s, %(purpose)s, %(identity)s,
    %(run)s, %(labels)s, %(prologue_seq)s, %(window_seq)s, marked.id, %(fork_seq)s,
    %(repeat_effects)s, %(pin)s
from marked
cross join (select {moment} as at) as moment
on conflict do nothing
returning *, id as run, 1::bigint as place, created_at as at, 0::bigint as seq, {durably};

-- name: copy_entries
-- The history of a fork, as it is: the digests do not name the run. Blobs are shared by their address. Differs: a part
-- of one statement.
insert into {schema}.entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
select
    entry.tenant, accepted.run, entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key,
    entry.body, entry.payload, entry.blob, entry.data_class, entry.key_id, entry.digest
from accepted
join {schema}.entry
    on entry.tenant = accepted.tenant and entry.run_id = accepted.fork_of and entry.seq <= accepted.fork_seq;

-- name: find_run
-- One row of a run.
select * from {schema}.run where tenant = %(tenant)s and id = %(run)s;

-- name: find_rollbacks
-- The runs that roll one back, in the order in which they were started.
select * from {schema}.run
where tenant = %(tenant)s and rolls_back = %(run)s and rolls_back is not null
order by created_at, id;

-- name: find_runs
-- Newest first; an empty parameter matches everything, and so do labels that cannot be read. Differs: those that are no
-- JSON fail here, and whoever asks compares by itself.
select * from {schema}.run
where
    tenant = %(tenant)s
    and created_at <= %(latest)s and (created_at < %(latest)s or id < %(behind)s)
    and (cardinality(%(statuses)s::text[]) = 0 or status = any(%(statuses)s::text[]))
    and (%(agent)s::text = '' or agent = %(agent)s)
    and (%(reason)s::text = '' or reason = %(reason)s)
    and (%(paused)s::boolean is null or (paused_at is not null) = %(paused)s)
    and case
        when %(labels)s::text = '{}' then true
        when json_typeof(run.labels::json) <> 'object' then true
        else not exists (
            select 1 from json_each_text(%(labels)s::json) as wanted
            where run.labels::json ->> wanted.key is distinct from wanted.value
        )
    end
order by created_at desc, id desc
limit %(limit)s;

-- name: add_entry
-- The primary key refuses a second entry at the same place. Differs: a part of one statement, for several runs.
insert into {schema}.entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
select
    accepted.tenant, accepted.run, given.seq, given.epoch, given.kind, given.version, given.at, given.scope, given.key,
    given.body, given.payload, decode(given.blob, 'hex'), given.data_class, given.key_id, decode(given.digest, 'hex')
from json_to_recordset(%(entries)s::json) as given (
    place bigint, seq bigint, epoch bigint, kind text, version bigint, at bigint, scope text, key text, body text,
    payload text, blob text, data_class text, key_id text, digest text
)
join accepted on accepted.place = given.place;

-- name: add_blob
-- The same content under the same key is stored once. Differs: in the order of addresses, so that two appends with the
-- same blobs wait for each other in one order. One that is there is locked and not changed: whoever wants to drop it,
-- because no entry named it, waits for this append and finds that one does.
insert into {schema}.blob (tenant, address, payload, data_class, key_id, created_at)
select distinct on (accepted.tenant, given.address)
    accepted.tenant, decode(given.address, 'hex'), given.payload, given.data_class, given.key_id, accepted.at
from json_to_recordset(%(blobs)s::json) as given (
    place bigint, address text, payload text, data_class text, key_id text
)
join accepted on accepted.place = given.place
order by accepted.tenant, given.address
on conflict (tenant, address) do update set created_at = excluded.created_at where false;

-- name: append
-- Authority (epoch and token) and the end of the log, compared for equality. A run that is not returned was not ours.
-- Differs: several runs in one statement; their rows are locked in the order of their ids before they are compared,
-- so that no two statements wait for each other crosswise and what is compared is what is then written over.
with given as materialized (
    select * from json_to_recordset(%(appends)s::json) as given (
        place bigint, tenant text, run text, epoch bigint, token text, seq bigint, next_seq bigint, head text,
        now bigint, progress boolean, turn boolean
    )
),
locked as materialized (
    select run.tenant, run.id, run.epoch, run.token, run.next_seq, given.place
    from {schema}.run
    join given on given.tenant = run.tenant and given.run = run.id
    order by run.tenant, run.id
    for no key update of run
),
accepted as (
    update {schema}.run
    set
        next_seq = given.next_seq,
        head = decode(given.head, 'hex'),
        updated_at = coalesce(given.now, {moment}),
        lapses = case when given.progress then 0 else run.lapses end,
        prologue_seq = case when given.turn then coalesce(run.prologue_seq, given.seq) else run.prologue_seq end,
        window_seq = case when given.turn then given.seq else run.window_seq end
    from locked
    join given on given.place = locked.place
    where
        run.tenant = locked.tenant and run.id = locked.id
        and locked.epoch = given.epoch and locked.token = given.token and locked.next_seq = given.seq
    returning run.tenant, run.id as run, given.place, given.seq, run.updated_at as at, {durably}
);

-- name: append_and_change
-- The same comparison; where a status is given it changes and the authority ends. A run that has ended keeps its status,
-- and the time and the reason of its end are not written over. Differs: runs that only append may be in the same
-- statement.
with given as materialized (
    select * from json_to_recordset(%(appends)s::json) as given (
        place bigint, tenant text, run text, epoch bigint, token text, seq bigint, next_seq bigint, head text,
        now bigint, progress boolean, turn boolean, status text, reason text, detail text, wake_at bigint,
        paused boolean, ended boolean
    )
),
locked as materialized (
    select run.tenant, run.id, run.epoch, run.token, run.next_seq, run.status, run.ended_at, given.place
    from {schema}.run
    join given on given.tenant = run.tenant and given.run = run.id
    order by run.tenant, run.id
    for no key update of run
),
accepted as (
    update {schema}.run
    set
        next_seq = given.next_seq,
        head = decode(given.head, 'hex'),
        updated_at = coalesce(given.now, {moment}),
        lapses = case when given.progress then 0 else run.lapses end,
        prologue_seq = case when given.turn then coalesce(run.prologue_seq, given.seq) else run.prologue_seq end,
        window_seq = case when given.turn then given.seq else run.window_seq end,
        status = coalesce(given.status, run.status),
        reason = case when given.status is null or run.ended_at is not null then run.reason else given.reason end,
        detail = case when given.status is null or run.ended_at is not null then run.detail else given.detail end,
        wake_at = case
            when given.status is null then run.wake_at
            when given.status = 'waiting' then given.wake_at
        end,
        ready_at = case
            when given.status is null then run.ready_at
            when given.status = 'ready' then coalesce(given.now, {moment})
        end,
        paused_at = case
            when given.paused is null then run.paused_at
            when given.paused then coalesce(run.paused_at, given.now, {moment})
        end,
        ended_at = coalesce(run.ended_at, case when given.ended then coalesce(given.now, {moment}) end),
        token = case when given.status is null then run.token end,
        owner = case when given.status is null then run.owner end,
        lease_ms = case when given.status is null then run.lease_ms end,
        renewed_at = case when given.status is null then run.renewed_at end,
        expires_at = case when given.status is null then run.expires_at end
    from locked
    join given on given.place = locked.place
    where
        run.tenant = locked.tenant and run.id = locked.id
        and locked.epoch = given.epoch and locked.token = given.token and locked.next_seq = given.seq
        and (given.status is null or locked.ended_at is null or locked.status = given.status)
    returning run.tenant, run.id as run, given.place, given.seq, run.updated_at as at, {durably}
);

-- name: take_message
-- The row stays, so that a second message with the sender's key is known.
update {schema}.inbox set taken_seq = accepted.seq
from json_to_recordset(%(messages)s::json) as given (place bigint, id bigint)
join accepted on accepted.place = given.place
where
    inbox.id = given.id and inbox.tenant = accepted.tenant and inbox.run_id = accepted.run
    and inbox.taken_seq is null;

-- name: put_operation
-- The record of an operation follows the entry of the same commit. One that was compensated stays so.
insert into {schema}.operation as operation (
    tenant, run_id, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at, updated_at,
    not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    business_key, shared_run, shared_operation
)
select
    accepted.tenant, accepted.run, given.id, given.call, given.tool, given.effect, given.key, given.digest,
    given.arguments, given.status, given.attempt, given.epoch, given.first_sent_at, given.updated_at, given.not_before,
    given.outcome, given.error, given.how, given.notes, given.duplicates, given.seq, given.approval,
    given.executed, given.compensates, given.business_key, given.shared_run, given.shared_operation
from json_to_recordset(%(operations)s::json) as given (
    place bigint, number bigint, id text, call text, tool text, effect text, key text, digest text, arguments text,
    status text, attempt bigint, epoch bigint, first_sent_at bigint, updated_at bigint, not_before bigint,
    outcome text, error text, how text, notes text, duplicates bigint, seq bigint, approval text, executed text,
    compensates text, business_key text, shared_run text, shared_operation text
)
join accepted on accepted.place = given.place
order by accepted.tenant, accepted.run, given.number
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
update {schema}.operation set status = 'compensated', compensated_by = given.id, updated_at = accepted.at
from json_to_recordset(%(compensations)s::json) as given (place bigint, id text, compensates text)
join accepted on accepted.place = given.place
join {schema}.run as undoing on undoing.tenant = accepted.tenant and undoing.id = accepted.run
where
    operation.tenant = accepted.tenant and operation.id = given.compensates and operation.compensated_by = ''
    and operation.run_id = undoing.rolls_back
returning operation.tenant, operation.id, operation.business_key, accepted.at;

-- name: find_operation
-- One operation by its full id.
select * from {schema}.operation where tenant = %(tenant)s and id = %(operation)s;

-- name: find_operations
-- The operations of a run, in the order of their first intent.
select * from {schema}.operation where tenant = %(tenant)s and run_id = %(run)s order by position;

-- name: find_alike
-- What the runs of one origin have recorded of a tool with these arguments, or under this key.
select operation.*
from (
    select tenant, id from {schema}.run where tenant = %(tenant)s and id = %(origin)s
    union all
    select tenant, id from {schema}.run where tenant = %(tenant)s and origin = %(origin)s and origin <> id
) as lineage
join {schema}.operation on operation.tenant = lineage.tenant and operation.run_id = lineage.id
where operation.tool = %(tool)s and (operation.digest = %(digest)s or operation.key = %(key)s)
order by operation.first_sent_at, operation.position;

-- name: put_divergence
-- The last report of a build counts.
insert into {schema}.divergence (tenant, run_id, code, report, at)
select accepted.tenant, accepted.run, given.code, given.report, accepted.at
from json_to_recordset(%(divergences)s::json) as given (place bigint, code text, report text)
join accepted on accepted.place = given.place
on conflict (tenant, run_id, code) do update set report = excluded.report, at = excluded.at;

-- name: forgive
-- A person asked to try again: no build is known to fail. Differs: it spares what the same append reports, because the
-- parts of one statement have no order.
delete from {schema}.divergence
using json_to_recordset(%(forgiven)s::json) as given (place bigint, spared text), accepted
where
    accepted.place = given.place and divergence.tenant = accepted.tenant and divergence.run_id = accepted.run
    and divergence.code is distinct from given.spared;

-- name: add_notification
-- The same fact is told once.
insert into {schema}.notification (tenant, run_id, seq, kind, id, role, facts, created_at)
select accepted.tenant, accepted.run, given.seq, given.kind, given.id, given.role, given.facts, accepted.at
from json_to_recordset(%(notices)s::json) as given (
    place bigint, number bigint, seq bigint, kind text, id text, role text, facts text
)
join accepted on accepted.place = given.place
order by accepted.tenant, accepted.run, given.number
on conflict do nothing;

-- name: find_divergences
-- Which builds cannot continue a run.
select code, report from {schema}.divergence where tenant = %(tenant)s and run_id = %(run)s order by at, code;

-- name: window
-- What replay needs: the prologue, then the current turn. Its cost does not grow with the turns between them.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), encode(entry.blob, 'hex'), entry.data_class, entry.key_id, entry.digest
from {schema}.run
join {schema}.entry on entry.tenant = run.tenant and entry.run_id = run.id
    and entry.seq < coalesce(run.prologue_seq, run.next_seq)
left join {schema}.blob on blob.tenant = entry.tenant and blob.address = entry.blob
where run.tenant = %(tenant)s and run.id = %(run)s
union all
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), encode(entry.blob, 'hex'), entry.data_class, entry.key_id, entry.digest
from {schema}.run
join {schema}.entry on entry.tenant = run.tenant and entry.run_id = run.id
    and entry.seq >= run.window_seq
left join {schema}.blob on blob.tenant = entry.tenant and blob.address = entry.blob
where run.tenant = %(tenant)s and run.id = %(run)s
order by 1;

-- name: entries
-- A stretch of a log, with payloads.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload), encode(entry.blob, 'hex'), entry.data_class, entry.key_id, entry.digest
from {schema}.entry
left join {schema}.blob on blob.tenant = entry.tenant and blob.address = entry.blob
where entry.tenant = %(tenant)s and entry.run_id = %(run)s and entry.seq > %(after)s
order by entry.seq
limit %(limit)s;

-- name: claimable_ready
-- Ready runs of each queue and agent, in the order in which they are due. Differs, as do the other ways to be
-- claimable: all agents at once, because the five ways go as one statement; divergences are counted run by run, so that the
-- planner walks the index in its order and stops at the limit, which it does not for `not exists`.
select ready.*, ready.ready_at as due
from unnest(%(agents)s::text[], %(codes)s::text[]) as served (agent, code)
cross join unnest(%(queues)s::text[]) as asked (queue)
cross join lateral (
    select * from {schema}.run
    where
        run.status = 'ready' and run.paused_at is null and run.queue = asked.queue and run.agent = served.agent
        and (run.deadline_at is null or run.deadline_at > {now} - %(grace_ms)s::bigint)
        and (%(tenants)s::text[] is null or run.tenant = any(%(tenants)s::text[]))
        and (run.pin is null or run.pin = %(versions)s::json ->> run.agent)
        and (
            select count(*) from {schema}.divergence
            where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = served.code
        ) < 1
    order by run.priority desc, run.ready_at, run.id
    limit %(limit)s
) as ready;

-- name: timed
-- The queues, agents and priorities in which runs wait for a time, found by going down the index of timers: of those
-- that have come the most urgent are then read without the others, and none of those that have not.
with recursive timed (queue, agent, code, priority) as (
    select asked.queue, served.agent, served.code, 9223372036854775807
    from unnest(%(agents)s::text[], %(codes)s::text[]) as served (agent, code)
    cross join unnest(%(queues)s::text[]) as asked (queue)
    union all
    select timed.queue, timed.agent, timed.code, (
        select run.priority from {schema}.run
        where
            run.status = 'waiting' and run.paused_at is null and run.wake_at is not null
            and run.queue = timed.queue and run.agent = timed.agent and run.priority < timed.priority
        order by run.priority desc limit 1
    )
    from timed where timed.priority is not null
)
select queue, agent, code, priority from timed where priority < 9223372036854775807;

-- name: claimable_by_timer
-- Waiting runs of each queue, agent and priority whose time has come.
select woken.*, woken.wake_at as due
from ({timed}) as served
cross join lateral (
    select * from {schema}.run
    where
        run.status = 'waiting' and run.paused_at is null and run.queue = served.queue and run.agent = served.agent
        and run.priority = served.priority and run.wake_at <= {now}
        and (run.deadline_at is null or run.deadline_at > {now} - %(grace_ms)s::bigint)
        and (%(tenants)s::text[] is null or run.tenant = any(%(tenants)s::text[]))
        and (run.pin is null or run.pin = %(versions)s::json ->> run.agent)
        and (
            select count(*) from {schema}.divergence
            where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = served.code
        ) < 1
    order by run.wake_at, run.id
    limit %(limit)s
) as woken;

-- name: claimable_by_message
-- Waiting and blocked runs with an unread row. It starts from the unread rows: a wake-up is a condition, so that it
-- cannot be lost between a sender and a run that goes to sleep.
select told.*, unread.due
from (
    select tenant, run_id, min(at) as due from {schema}.inbox where taken_seq is null group by tenant, run_id
) as unread
cross join lateral (
    select * from {schema}.run where run.tenant = unread.tenant and run.id = unread.run_id limit 1
) as told
join unnest(%(agents)s::text[], %(codes)s::text[]) as served (agent, code) on served.agent = told.agent
where
    told.status in ('waiting', 'blocked') and told.paused_at is null
    and told.queue = any(%(queues)s::text[])
    and (told.deadline_at is null or told.deadline_at > {now} - %(grace_ms)s::bigint)
    and (%(tenants)s::text[] is null or told.tenant = any(%(tenants)s::text[]))
    and (told.pin is null or told.pin = %(versions)s::json ->> told.agent)
    and (
        select count(*) from {schema}.divergence
        where divergence.tenant = told.tenant and divergence.run_id = told.id and divergence.code = served.code
    ) < 1
order by told.priority desc, unread.due, told.id
limit %(limit)s;

-- name: claimable_by_build
-- Runs of each agent that other builds could not continue and this one has not tried.
select diverged.*, diverged.updated_at as due
from unnest(%(agents)s::text[], %(codes)s::text[]) as served (agent, code)
cross join lateral (
    select * from {schema}.run
    where
        run.status = 'blocked' and run.reason in ('diverged', 'undecodable') and run.paused_at is null
        and run.agent = served.agent
        and run.queue = any(%(queues)s::text[])
        and (run.deadline_at is null or run.deadline_at > {now} - %(grace_ms)s::bigint)
        and (%(tenants)s::text[] is null or run.tenant = any(%(tenants)s::text[]))
        and (run.pin is null or run.pin = %(versions)s::json ->> run.agent)
        and (
            select count(*) from {schema}.divergence
            where divergence.tenant = run.tenant and divergence.run_id = run.id and divergence.code = served.code
        ) < 1
    order by run.priority desc, run.updated_at, run.id
    limit %(limit)s
) as diverged;

-- name: claimable_by_lapse
-- Running runs that this worker has watched and whose lease has expired.
select lapsed.*, lapsed.expires_at as due
from unnest(%(watched_tenants)s::text[], %(watched_runs)s::text[], %(watched_epochs)s::bigint[])
    as watched (tenant, run, epoch)
cross join lateral (
    select * from {schema}.run where run.tenant = watched.tenant and run.id = watched.run limit 1
) as lapsed
join unnest(%(agents)s::text[], %(codes)s::text[]) as served (agent, code) on served.agent = lapsed.agent
where
    lapsed.epoch = watched.epoch
    and lapsed.status = 'running' and lapsed.expires_at <= {now} and lapsed.paused_at is null
    and lapsed.queue = any(%(queues)s::text[])
    and (lapsed.deadline_at is null or lapsed.deadline_at > {now} - %(grace_ms)s::bigint)
    and (%(tenants)s::text[] is null or lapsed.tenant = any(%(tenants)s::text[]))
    and (lapsed.pin is null or lapsed.pin = %(versions)s::json ->> lapsed.agent)
    and (
        select count(*) from {schema}.divergence
        where divergence.tenant = lapsed.tenant and divergence.run_id = lapsed.id and divergence.code = served.code
    ) < 1
order by lapsed.priority desc, lapsed.expires_at, lapsed.id
limit %(limit)s;

-- name: claim
-- Epoch and next_seq show that nobody was faster; a lease may have been renewed since it was read. A lapse is not
-- counted where the run's owner was stalled by another run. Differs: several runs in one statement; a run that somebody
-- else is just writing to is left out, not waited for.
with given as materialized (
    select * from json_to_recordset(%(claims)s::json) as given (
        place bigint, tenant text, run text, epoch bigint, token text, seq bigint, next_seq bigint, head text,
        status text, lapse boolean
    )
),
locked as materialized (
    select
        run.tenant, run.id, run.epoch, run.next_seq, run.status, run.paused_at, run.expires_at, given.place,
        {moment} as at
    from {schema}.run
    join given on given.tenant = run.tenant and given.run = run.id
    order by run.tenant, run.id
    for no key update of run skip locked
),
accepted as (
    update {schema}.run
    set
        status = 'running',
        epoch = run.epoch + 1,
        token = given.token,
        owner = %(owner)s,
        lease_ms = %(lease_ms)s,
        renewed_at = locked.at,
        expires_at = locked.at + %(lease_ms)s,
        next_seq = given.next_seq,
        head = decode(given.head, 'hex'),
        updated_at = locked.at,
        wake_at = null,
        ready_at = null,
        reason = '',
        detail = '',
        lapses = run.lapses + (
            given.lapse
            and not exists (
                select 1 from {schema}.worker where worker.owner = run.owner and worker.stalled_by not in ('', run.id)
            )
        )::int
    from locked
    join given on given.place = locked.place
    where
        run.tenant = locked.tenant and run.id = locked.id
        and locked.epoch = given.epoch and locked.next_seq = given.seq and locked.status = given.status
        and locked.paused_at is null and (locked.status <> 'running' or locked.expires_at <= locked.at)
    returning run.*, run.id as run, given.place, given.seq, locked.at, {durably}
);

-- name: control
-- A claim that leaves the status as it is; only a running run has a lease. `only` (null: any) and `unless_live` say
-- which runs are left alone. Differs: the beginning of one statement, after `find_authority` or `lock_run`.
with accepted as (
    update {schema}.run
    set
        epoch = epoch + 1,
        token = %(token)s,
        owner = case status when 'running' then %(owner)s end,
        lease_ms = case status when 'running' then %(lease_ms)s::bigint end,
        renewed_at = case status when 'running' then %(now)s::bigint end,
        expires_at = case status when 'running' then %(now)s::bigint + %(lease_ms)s::bigint end,
        next_seq = %(next_seq)s,
        head = %(head)s,
        updated_at = %(now)s::bigint
    where
        tenant = %(tenant)s and id = %(run)s and epoch = %(epoch)s and next_seq = %(seq)s
        and (%(only)s::text[] is null or status = any(%(only)s::text[]))
        and (not %(unless_live)s or status <> 'running' or expires_at <= %(now)s::bigint)
    returning *, id as run, 1::bigint as place, updated_at as at, %(seq)s::bigint as seq, {durably}
);

-- name: find_authority
-- The row, if epoch and token are still the caller's. Differs: it waits for whoever is writing to the run, and keeps
-- others from it until the claim that follows has committed.
select *, {moment} as moment from {schema}.run
where tenant = %(tenant)s and id = %(run)s and epoch = %(epoch)s and token = %(token)s
for no key update;

-- name: renew
-- Authorities, locked in the order of their ids. A run that does not run has no lease to extend, but it may still be
-- ours. Differs: all in one statement, with `see_worker` and `has_unread` as parts of it.
with given as materialized (
    select * from json_to_recordset(%(held)s::json) as given (
        place bigint, tenant text, run text, epoch bigint, token text
    )
),
locked as materialized (
    select run.tenant, run.id, run.epoch, run.token, given.place
    from {schema}.run
    join given on given.tenant = run.tenant and given.run = run.id
    where run.epoch = given.epoch and run.token = given.token
    order by run.tenant, run.id
    for no key update of run
),
kept as (
    update {schema}.run
    set
        renewed_at = case run.status when 'running' then {moment} end,
        expires_at = case run.status when 'running' then {moment} + %(lease_ms)s::bigint end,
        lease_ms = case run.status when 'running' then %(lease_ms)s::bigint end
    from locked
    where run.tenant = locked.tenant and run.id = locked.id
        and run.epoch = locked.epoch and run.token = locked.token
    returning run.tenant, run.id as run, locked.place, {durably}
);

-- name: has_unread
-- Whether something waits in a run's inbox.
select exists (
    select 1 from {schema}.inbox
    where inbox.tenant = kept.tenant and inbox.run_id = kept.run and inbox.taken_seq is null
);

-- name: see_worker
-- The sign of life that comes with a renewal, or with a look; with it, whether and since when the worker is stalled,
-- and how far its clock is behind.
update {schema}.worker
set
    seen_at = {moment}, stalled_at = {moment} - %(stalled_ms)s::bigint, stalled_by = %(stalled_by)s,
    skew_ms = %(skew_ms)s
where owner = %(owner)s;

-- name: put_worker
-- An announcement, or a new one of the same worker, which has begun when it first announced itself.
insert into {schema}.worker (owner, pid, serves, versions, knows, started_at, seen_at, skew_ms)
values (
    %(owner)s, %(pid)s, %(serves)s, %(versions)s, %(knows)s, coalesce(nullif(%(started_at)s::bigint, 0), {moment}), {moment},
    %(skew_ms)s
)
on conflict (owner) do update set
    pid = excluded.pid, serves = excluded.serves, versions = excluded.versions, seen_at = excluded.seen_at,
    skew_ms = excluded.skew_ms;

-- name: drop_worker
-- A worker that leaves in good order.
delete from {schema}.worker where owner = %(owner)s;

-- name: drop_silent_workers
-- Workers that were killed never leave: their rows go a day after the last sign of life. Differs: not those that
-- another worker is just dropping.
delete from {schema}.worker
where owner in (select owner from {schema}.worker where seen_at < {now} - 86400000 for update skip locked);

-- name: find_workers
-- Who gave a sign of life since.
select * from {schema}.worker where seen_at >= {now} - %(within_ms)s order by started_at, owner;

-- name: overdue
-- Running runs that were not renewed for a third of their lease.
select tenant, id, epoch, renewed_at, lease_ms from {schema}.run
where status = 'running' and renewed_at + lease_ms / 3 <= {now}
order by expires_at
limit 10 * %(most)s::bigint;

-- name: past_deadline
-- Runs that have not ended in time and have no owner who could end them: those that nobody could claim at once, others
-- when their grace is over.
select tenant, id from {schema}.run
where
    deadline_at <= {now} and ended_at is null
    and (status = 'blocked' or paused_at is not null or deadline_at <= {now} - %(grace_ms)s::bigint)
    and (status <> 'running' or expires_at <= {now})
order by deadline_at
limit %(most)s;

-- name: stranded
-- Runs for which something must be done that no live worker could do: ready ones that some builds could not continue
-- (none of the others is there to take them any more), those that are being cancelled, and those that were asked to end.
select lying.tenant, lying.id, lying.reason
from (
    (
        select tenant, id, agent, pin, reason from {schema}.run
        where status = 'ready' and reason = 'diverged' and paused_at is null
        order by ready_at
        limit %(most)s
    )
    union all
    (
        select tenant, id, agent, pin, reason from {schema}.run
        where reason = 'cancelling' and ended_at is null and paused_at is null
        limit 10 * %(most)s::bigint
    )
    union all
    (
        select unread.tenant, unread.run_id, asked.agent, asked.pin, 'asked'
        from (
            select distinct tenant, run_id from {schema}.inbox where taken_seq is null and topic = 'control'
        ) as unread
        cross join lateral (
            select agent, pin from {schema}.run
            where
                run.tenant = unread.tenant and run.id = unread.run_id
                and run.status in ('ready', 'waiting') and run.paused_at is null
            limit 1
        ) as asked
        limit 10 * %(most)s::bigint
    )
) as lying
where not exists (
    select 1 from {schema}.worker cross join json_each_text(worker.serves::json) as can
    where
        worker.seen_at >= {now} - 2 * %(lease_ms)s::bigint and can.key = lying.agent
        and (lying.pin is null or lying.pin = worker.versions::json ->> lying.agent)
        and not exists (
            select 1 from {schema}.divergence
            where divergence.tenant = lying.tenant and divergence.run_id = lying.id and divergence.code = can.value
        )
);

-- name: sent
-- Runs with something unread that this worker drives; then those to be looked after (`late`), which have ended, or are
-- blocked or paused and were asked to end.
select unread.tenant, unread.run_id as id, told.late
from (
    select tenant, run_id, bool_or(topic = 'control') as asked from {schema}.inbox
    where taken_seq is null group by tenant, run_id
) as unread
cross join lateral (
    select
        status, owner,
        ended_at is not null or ((paused_at is not null or status = 'blocked') and unread.asked) as late
    from {schema}.run
    where run.tenant = unread.tenant and run.id = unread.run_id limit 1
) as told
where told.late or (told.status = 'running' and told.owner = %(owner)s)
order by told.late
limit 100 * %(most)s::bigint;

-- name: next_due
-- How long until the next timer of a queue and agent that are served, or the next deadline. One that has come is claimable, or
-- needs attention, or is nothing that this worker could do: it must not make it look again and again.
select min(due) - {now}
from (
    select (
        select min(run.wake_at) from {schema}.run
        where
            run.status = 'waiting' and run.paused_at is null and run.queue = timed.queue and run.agent = timed.agent
            and run.priority = timed.priority and run.wake_at is not null and run.wake_at > {now}
    ) as due
    from ({timed}) as timed
    union all
    select min(deadline_at) from {schema}.run where ended_at is null and deadline_at > {now}
) as coming;

-- name: duty_due
-- Duties that are due and that nobody is at. Telling is due whenever something new has to be told, and stalls while a
-- worker is stuck, whatever their time: conditions, for which nobody who writes has to touch a duty's row.
select name from {schema}.duty
where
    (
        next_at <= {now}
        or (name = 'telling' and exists (select 1 from {schema}.notification where unrouted = 'new'))
        or (
            name = 'stalls'
            and exists (select 1 from {schema}.worker where stalled_at is not null and seen_at > {now} - 60000)
        )
    )
    and (token is null or expires_at <= {now})
order by name;

-- name: look
-- All of the above for one worker. Words in braces are statements of this file; one row of each way to be claimable is
-- enough. Differs: `timed` is asked once, because to plan it takes longer than to execute it.
select
    {now} as now,
    exists (
        ({claimable_ready}) union all ({claimable_by_timer}) union all ({claimable_by_build})
        union all ({claimable_by_message})
    ) as claimable,
    ({next_due}) as due_ms,
    (
        select coalesce(json_agg(json_build_array(tenant, id, epoch, renewed_at, lease_ms)), '[]')
        from ({overdue}) as overdue
    ) as overdue,
    (select coalesce(json_agg(json_build_array(tenant, id)), '[]') from ({past_deadline}) as past) as past_deadline,
    (
        select coalesce(json_agg(json_build_array(tenant, id, reason)), '[]') from ({stranded}) as stranded
    ) as stranded,
    (select coalesce(json_agg(json_build_array(tenant, id, late)), '[]') from ({sent}) as sent) as sent,
    (select coalesce(json_agg(name), '[]') from ({duty_due}) as due) as duties,
    {database} as database;

-- name: add_message
-- No row is added for a run that does not exist or is being forgotten, or for a key that the sender has used. The row of a
-- run that has not ended is not touched. Differs: that of an ended one is kept from being forgotten until this commits.
insert into {schema}.inbox (tenant, run_id, topic, sender_key, body, at)
select %(tenant)s, %(run)s, %(topic)s, %(sender_key)s, %(body)s, {moment}
where
    exists (select 1 from {schema}.run where tenant = %(tenant)s and id = %(run)s and ended_at is null)
    or exists (
        select 1 from {schema}.run
        where tenant = %(tenant)s and id = %(run)s and ended_at is not null and phase <> 'forgetting'
        for key share
    )
on conflict do nothing
returning {durably};

-- name: run_exists
-- Tells an unknown run from a known message.
select exists (
    select 1 from {schema}.run where tenant = %(tenant)s and id = %(run)s and phase <> 'forgetting'
);

-- name: unread
-- All rows that no append has taken, in order of arrival.
select topic, sender_key, body, id, at from {schema}.inbox
where tenant = %(tenant)s and run_id = %(run)s and taken_seq is null
order by id;

-- name: ask_approval
-- In the append that records what is proposed. Its id is drawn anew each time.
insert into {schema}.approval (
    tenant, run_id, id, operation, tool, shown, arguments, proposed, policy, role, quorum, requester, asked_at,
    expires_at, status
)
select
    accepted.tenant, accepted.run, given.id, given.operation, given.tool, given.shown, given.arguments, given.proposed,
    given.policy, given.role, given.quorum, given.requester, accepted.at, given.expires_at, 'asked'
from json_to_recordset(%(asks)s::json) as given (
    place bigint, id text, operation text, tool text, shown text, arguments text, proposed text, policy text,
    role text, quorum bigint, requester text, expires_at bigint
)
join accepted on accepted.place = given.place;

-- name: use_approval
-- What an append depended on was used. One operation may use it more than once, until it expires: when it is known not
-- to have acted. Differs: `append_using` has found that it is good, and holds its row.
update {schema}.approval set used_at = coalesce(approval.used_at, accepted.at)
from accepted, usable
where approval.tenant = usable.tenant and approval.id = usable.id;

-- name: withdraw_approvals
-- The run has ended: what it has open is nobody's to decide any more.
update {schema}.approval set status = 'withdrawn', why = 'the run has ended', decided_at = accepted.at
from json_to_recordset(%(ends)s::json) as given (place bigint)
join accepted on accepted.place = given.place
where
    approval.tenant = accepted.tenant and approval.run_id = accepted.run
    and (approval.status = 'asked' or (approval.status = 'approved' and approval.used_at is null));

-- name: find_approval
-- One approval by its full id. Differs: with the time, for whoever judges it.
select *, {moment} as moment from {schema}.approval where tenant = %(tenant)s and id = %(id)s;

-- name: find_approvals
-- Oldest first; an empty parameter matches everything.
select * from {schema}.approval
where
    tenant = %(tenant)s
    and (cardinality(%(statuses)s::text[]) = 0 or status = any(%(statuses)s::text[]))
    and (%(role)s::text = '' or role = %(role)s)
    and (%(run)s::text = '' or run_id = %(run)s)
order by asked_at, id
limit %(limit)s;

-- name: find_votes
-- What was done about an approval, in order.
select * from {schema}.vote where tenant = %(tenant)s and approval = %(id)s order by number;

-- name: decide_approval
-- What a vote makes of an approval, if it is as it was judged. One that is asked for cannot be decided after its time.
-- Differs: the beginning of one statement. The time is compared once the row is held: it may have been waited for.
with locked as materialized (
    select status, votes, used_at, expires_at from {schema}.approval
    where tenant = %(tenant)s and id = %(id)s
    for no key update
),
accepted as (
    update {schema}.approval
    set
        status = %(status)s,
        votes = approval.votes + 1,
        executed = %(executed)s,
        edited = %(edited_arguments)s,
        why = %(reason)s,
        decided_at = case when approval.status = %(status)s then decided_at else {moment} end
    from locked
    where
        approval.tenant = %(tenant)s and approval.id = %(id)s
        and locked.status = %(before)s and locked.votes = %(votes)s and locked.used_at is null
        and (locked.status <> 'asked' or locked.expires_at > {moment})
    returning approval.*, {moment} as at, {durably}
);

-- name: add_vote
-- What one person did, in the order of the acts.
insert into {schema}.vote (tenant, approval, number, who, act, role, place, to_whom, why, digest, edited, nonce, at)
select
    tenant, id, votes, %(who)s, %(act)s, %(role)s, %(place)s, %(to_whom)s, %(why)s, %(digest)s, %(edited)s, %(nonce)s, at
from accepted;

-- name: tell_run
-- A decision wakes the run that waits for it.
insert into {schema}.inbox (tenant, run_id, topic, sender_key, body, at)
select tenant, run_id, %(topic)s, %(sender_key)s, %(body)s, at from accepted
where %(decided)s::boolean
on conflict do nothing;

-- name: end_approval
-- It does not count any more. Nobody can say that its time is over before it is.
update {schema}.approval set status = %(status)s, why = %(why)s, decided_at = {moment}
where
    tenant = %(tenant)s and id = %(id)s and status in ('asked', 'approved')
    and (%(status)s <> 'expired' or expires_at <= {moment})
returning {durably};

-- name: take_key
-- It is taken if it is nobody's, free, or open for this very operation. Nothing returned means that it is another's.
-- Differs: within a transaction of the user's alone; an append has it in `append_using`.
insert into {schema}.business_key as held (
    tenant, key, shown, tool, digest, run_id, operation, status, created_at, updated_at
)
values (
    %(tenant)s, %(key)s, %(shown)s, %(tool)s, %(digest)s, %(of_run)s, %(operation)s, 'open', {moment}, {moment}
)
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
returning held.key, {durably};

-- name: wake_waiters
-- Who waits for a business key is sent a message in the commit in which it changes, if it will: see `mark_key`. Whoever
-- writes that knows what of the same run waits for it.
-- Differs: who waits is read from the row as `lock_keys` holds it. What the statement sees besides may be older than a
-- commit that it has waited for.
insert into {schema}.inbox (tenant, run_id, topic, sender_key, body, at)
select held.tenant, run.id, given.topic, held.key || ':' || held.created_at || ':' || held.changes, '{}', accepted.at
from json_to_recordset(%(wakes)s::json) as given (
    place bigint, number bigint, key text, of_run text, operation text, status text, topic text
)
join accepted on accepted.place = given.place
join lock_keys as held on held.key = given.key
cross join lateral json_array_elements_text(held.waiters::json) as waiter (id)
join {schema}.run on run.tenant = held.tenant and run.id = waiter.id and run.ended_at is null
where
    run.id <> accepted.run
    and (
        (
            held.run_id = given.of_run and held.operation = given.operation
            and held.status <> given.status and held.status <> 'compensated'
        )
        or (held.status = 'free' and given.status <> 'free')
    )
on conflict do nothing;

-- name: mark_key
-- What became of a business key is said by the operation that has it, or by one that turns out to have acted under a
-- free one. What was compensated stays so. Not everybody
-- who says it knows the text. Differs: it joins `lock_keys`, so that no row is written before that has it.
insert into {schema}.business_key as held (
    tenant, key, shown, tool, digest, run_id, operation, status, outcome, error, changes, created_at, updated_at
)
select
    accepted.tenant, given.key, given.shown, given.tool, given.digest, given.of_run, given.operation, given.status,
    given.outcome, given.error, coalesce(lock_keys.changes + 1, 0), accepted.at, accepted.at
from json_to_recordset(%(marks)s::json) as given (
    place bigint, number bigint, key text, shown text, tool text, digest text, of_run text, operation text, status text,
    outcome text, error text
)
join accepted on accepted.place = given.place
left join lock_keys on lock_keys.key = given.key
order by given.key
on conflict (tenant, key) do update set
    shown = case when excluded.shown = '' then held.shown else excluded.shown end,
    tool = excluded.tool,
    digest = excluded.digest,
    run_id = excluded.run_id,
    operation = excluded.operation,
    status = excluded.status,
    outcome = excluded.outcome,
    error = excluded.error,
    waiters = '[]',
    changes = held.changes + 1,
    updated_at = excluded.updated_at
where
    (
        held.run_id = excluded.run_id and held.operation = excluded.operation
        and held.status <> excluded.status and held.status <> 'compensated'
    )
    or (held.status = 'free' and excluded.status <> 'free');

-- name: compensate_key
-- With the operation that has it, if this append has compensated that. Nobody waits for one that has succeeded.
-- Differs: it reads what `compensate` has just done.
update {schema}.business_key set status = 'compensated', changes = business_key.changes + 1, updated_at = compensate.at
from compensate
where
    business_key.tenant = compensate.tenant and business_key.key = compensate.business_key
    and business_key.operation = compensate.id and business_key.status <> 'compensated';

-- name: await_key
-- The run is woken when the key changes. Nothing returned means that it has changed since it was read, or is settled.
update {schema}.business_key
set
    waiters = case
        when waiters::jsonb ? %(run)s::text then waiters
        else (waiters::jsonb || to_jsonb(%(run)s::text))::text
    end
where
    tenant = %(tenant)s and key = %(key)s and changes = %(changes)s::bigint and status in ('open', 'unknown')
returning {durably};

-- name: find_business_key
-- One by the digest of its text.
select * from {schema}.business_key where tenant = %(tenant)s and key = %(key)s;

-- name: find_business_keys
-- In the order of their digests, behind one; an empty parameter matches everything.
select * from {schema}.business_key
where
    tenant = %(tenant)s and key > %(after)s
    and (cardinality(%(statuses)s::text[]) = 0 or status = any(%(statuses)s::text[]))
    and (%(text)s::text = '' or strpos(shown, %(text)s) > 0)
    and (%(run)s::text = '' or run_id = %(run)s)
    and (not %(awaited)s::boolean or waiters <> '[]')
order by key
limit %(limit)s;
