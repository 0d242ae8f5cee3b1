-- A run on its way out of a store and into one. Names are those of the other stores. Leases and tokens are left behind;
-- a test compares the columns with the tables.

-- name: begin_snapshot
-- Everything that is read is of one moment. Differs: in a file any transaction is so.
begin isolation level repeatable read read only;

-- name: run_part
-- The row, and whether it is being forgotten.
select
    id, agent, version, status, epoch, next_seq, encode(head, 'hex') as head, created_at, updated_at, input_digest,
    origin, queue, priority, wake_at, deadline_at, paused_at, ended_at, reason, detail, lapses, prologue_seq,
    window_seq, principal, purpose, grants, identity, root, parent, rolls_back, pin, traceparent, labels, phase,
    fork_of, fork_seq, forked, repeat_effects
from {schema}.run
where tenant = %(tenant)s and id = %(run)s;

-- name: entry_parts
-- A stretch of the log, with payloads.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload) as payload, encode(entry.blob, 'hex') as blob, entry.data_class,
    entry.key_id, encode(entry.digest, 'hex') as digest
from {schema}.entry
left join {schema}.blob on blob.tenant = entry.tenant and blob.address = entry.blob
where entry.tenant = %(tenant)s and entry.run_id = %(run)s and entry.seq > %(after)s
order by entry.seq
limit %(limit)s;

-- name: operation_parts
-- In the order of their first intent.
select
    position as place, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at,
    updated_at, not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    compensated_by, business_key, shared_run, shared_operation, data_class, key_id
from {schema}.operation
where tenant = %(tenant)s and run_id = %(run)s and position > %(after)s
order by position
limit %(limit)s;

-- name: message_parts
-- In the order of arrival, also those that were taken.
select id as place, topic, sender_key, body, at, taken_seq, data_class, key_id
from {schema}.inbox
where tenant = %(tenant)s and run_id = %(run)s and id > %(after)s
order by id
limit %(limit)s;

-- name: divergence_parts
-- All of them: one for each build that failed.
select code, report, at from {schema}.divergence
where tenant = %(tenant)s and run_id = %(run)s
order by at, code;

-- name: digest_at
-- Where another log ends, this one has an entry with the same digest if it goes on from it.
select digest from {schema}.entry where tenant = %(tenant)s and run_id = %(run)s and seq = %(seq)s;

-- name: put_run
-- None is added where one is.
insert into {schema}.run (
    tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
    priority, wake_at, deadline_at, paused_at, ended_at, reason, detail, lapses, prologue_seq, window_seq,
    principal, purpose, grants, identity, root, parent, rolls_back, pin, traceparent, labels, ready_at, imported_at,
    fork_of, fork_seq, forked, repeat_effects
)
values (
    %(tenant)s, %(id)s, %(agent)s, %(version)s::bigint, %(status)s, %(epoch)s::bigint, %(next_seq)s::bigint,
    decode(%(head)s, 'hex'), %(created_at)s::bigint, %(updated_at)s::bigint, %(input_digest)s, %(origin)s,
    %(queue)s, %(priority)s::bigint, %(wake_at)s::bigint, %(deadline_at)s::bigint, %(paused_at)s::bigint,
    %(ended_at)s::bigint, %(reason)s, %(detail)s, %(lapses)s::bigint, %(prologue_seq)s::bigint,
    %(window_seq)s::bigint, %(principal)s, %(purpose)s, %(grants)s, %(identity)s, %(root)s, %(parent)s,
    %(rolls_back)s, %(pin)s, %(traceparent)s, %(labels)s, %(ready_at)s::bigint, %(imported_at)s::bigint,
    %(fork_of)s, %(fork_seq)s::bigint, %(forked)s::bigint, %(repeat_effects)s::bigint
)
on conflict do nothing
returning id;

-- name: put_blob
-- As add_blob: one that is there is locked, so that nobody drops it before this commits.
insert into {schema}.blob (tenant, address, payload, data_class, key_id, created_at)
select distinct on (given.address)
    %(tenant)s, decode(given.address, 'hex'), given.payload, given.data_class, given.key_id, %(now)s
from json_to_recordset(%(rows)s::json) as given (address text, payload text, data_class text, key_id text)
order by given.address
on conflict (tenant, address) do update set created_at = excluded.created_at where false;

-- name: put_entry
-- Digests and places are those that it had.
insert into {schema}.entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
select
    %(tenant)s, %(run)s, given.seq, given.epoch, given.kind, given.version, given.at, given.scope, given.key,
    given.body, given.payload, decode(given.blob, 'hex'), given.data_class, given.key_id,
    decode(given.digest, 'hex')
from json_to_recordset(%(rows)s::json) as given (
    place bigint, seq bigint, epoch bigint, kind text, version bigint, at bigint, scope text, key text, body text,
    payload text, blob text, data_class text, key_id text, digest text
)
order by given.place;

-- name: put_operation
-- Its place among those of the run is kept, its number is new.
insert into {schema}.operation (
    tenant, run_id, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at,
    updated_at, not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    compensated_by, business_key, shared_run, shared_operation, data_class, key_id
)
select
    %(tenant)s, %(run)s, given.id, given.call, given.tool, given.effect, given.key, given.digest, given.arguments,
    given.status, given.attempt, given.epoch, given.first_sent_at, given.updated_at, given.not_before,
    given.outcome, given.error, given.how, given.notes, given.duplicates, given.seq, given.approval,
    given.executed, given.compensates, given.compensated_by, given.business_key, given.shared_run,
    given.shared_operation, given.data_class, given.key_id
from json_to_recordset(%(rows)s::json) as given (
    place bigint, id text, call text, tool text, effect text, key text, digest text, arguments text, status text,
    attempt bigint, epoch bigint, first_sent_at bigint, updated_at bigint, not_before bigint, outcome text,
    error text, how text, notes text, duplicates bigint, seq bigint, approval text,
    executed text, compensates text, compensated_by text, business_key text, shared_run text,
    shared_operation text, data_class text, key_id text
)
order by given.place;

-- name: put_message
-- The same of a message.
insert into {schema}.inbox (
    tenant, run_id, topic, sender_key, body, at, taken_seq, data_class, key_id
)
select
    %(tenant)s, %(run)s, given.topic, given.sender_key, given.body, given.at, given.taken_seq, given.data_class,
    given.key_id
from json_to_recordset(%(rows)s::json) as given (
    place bigint, topic text, sender_key text, body text, at bigint, taken_seq bigint, data_class text, key_id text
)
order by given.place;

-- name: put_divergence
-- What builds said of it.
insert into {schema}.divergence (
    tenant, run_id, code, report, at
)
select
    %(tenant)s, %(run)s, given.code, given.report, given.at
from json_to_recordset(%(rows)s::json) as given (
    place bigint, code text, report text, at bigint
)
order by given.place;
