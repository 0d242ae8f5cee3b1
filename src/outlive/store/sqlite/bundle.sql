-- A run on its way out of a store and into one. Names are those of the other stores. Leases and tokens are left behind;
-- a test compares the columns with the tables.

-- name: run_part
-- The row, and whether it is being forgotten.
select
    id, agent, version, status, epoch, next_seq, lower(hex(head)) as head, created_at, updated_at, input_digest,
    origin, queue, priority, wake_at, deadline_at, paused_at, ended_at, reason, detail, lapses, prologue_seq,
    window_seq, principal, purpose, grants, identity, root, parent, rolls_back, pin, traceparent, labels, phase,
    fork_of, fork_seq, forked, repeat_effects
from run
where tenant = :tenant and id = :run;

-- name: entry_parts
-- A stretch of the log, with payloads.
select
    entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
    coalesce(entry.payload, blob.payload) as payload, nullif(lower(hex(entry.blob)), '') as blob, entry.data_class,
    entry.key_id, lower(hex(entry.digest)) as digest
from entry
left join blob on blob.tenant = entry.tenant and blob.address = entry.blob
where entry.tenant = :tenant and entry.run_id = :run and entry.seq > :after
order by entry.seq
limit :limit;

-- name: operation_parts
-- In the order of their first intent.
select
    position as place, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at,
    updated_at, not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    compensated_by, business_key, shared_run, shared_operation, data_class, key_id
from operation
where tenant = :tenant and run_id = :run and position > :after
order by position
limit :limit;

-- name: message_parts
-- In the order of arrival, also those that were taken.
select id as place, topic, sender_key, body, at, taken_seq, data_class, key_id
from inbox
where tenant = :tenant and run_id = :run and id > :after
order by id
limit :limit;

-- name: divergence_parts
-- All of them: one for each build that failed.
select code, report, at from divergence
where tenant = :tenant and run_id = :run
order by at, code;

-- name: digest_at
-- Where another log ends, this one has an entry with the same digest if it goes on from it.
select digest from entry where tenant = :tenant and run_id = :run and seq = :seq;

-- name: put_run
-- None is added where one is.
insert into run (
    tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest, origin, queue,
    priority, wake_at, deadline_at, paused_at, ended_at, reason, detail, lapses, prologue_seq, window_seq,
    principal, purpose, grants, identity, root, parent, rolls_back, pin, traceparent, labels, ready_at, imported_at,
    fork_of, fork_seq, forked, repeat_effects
)
values (
    :tenant, :id, :agent, :version, :status, :epoch, :next_seq, :head, :created_at, :updated_at, :input_digest,
    :origin, :queue, :priority, :wake_at, :deadline_at, :paused_at, :ended_at, :reason, :detail, :lapses,
    :prologue_seq, :window_seq, :principal, :purpose, :grants, :identity, :root, :parent, :rolls_back, :pin,
    :traceparent, :labels, :ready_at, :imported_at, :fork_of, :fork_seq, :forked, :repeat_effects
)
on conflict do nothing;

-- name: put_blob
-- The same content under the same key is stored once.
insert into blob (tenant, address, payload, data_class, key_id, created_at)
values (:tenant, :address, :payload, :data_class, :key_id, :now)
on conflict do nothing;

-- name: put_entry
-- Digests and places are those that it had.
insert into entry (
    tenant, run_id, seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest
)
values (
    :tenant, :run, :seq, :epoch, :kind, :version, :at, :scope, :key, :body, :payload, :blob, :data_class, :key_id,
    :digest
);

-- name: put_operation
-- Its place among those of the run is kept, its number is new.
insert into operation (
    tenant, run_id, id, call, tool, effect, key, digest, arguments, status, attempt, epoch, first_sent_at,
    updated_at, not_before, outcome, error, how, notes, duplicates, seq, approval, executed, compensates,
    compensated_by, business_key, shared_run, shared_operation, data_class, key_id
)
values (
    :tenant, :run, :id, :call, :tool, :effect, :key, :digest, :arguments, :status, :attempt, :epoch, :first_sent_at,
    :updated_at, :not_before, :outcome, :error, :how, :notes, :duplicates, :seq, :approval, :executed,
    :compensates, :compensated_by, :business_key, :shared_run, :shared_operation, :data_class, :key_id
);

-- name: put_message
-- The same of a message.
insert into inbox (
    tenant, run_id, topic, sender_key, body, at, taken_seq, data_class, key_id
)
values (
    :tenant, :run, :topic, :sender_key, :body, :at, :taken_seq, :data_class, :key_id
);

-- name: put_divergence
-- What builds said of it.
insert into divergence (
    tenant, run_id, code, report, at
)
values (
    :tenant, :run, :code, :report, :at
);
