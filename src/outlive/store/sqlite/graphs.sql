-- Checkpoints of graphs that another library runs. Names are those of the other stores.

-- name: add_thread
-- The row that a thread is held and locked by.
insert into graph_thread (tenant, id, known, updated_at) values (:tenant, :thread, :fresh, :now)
on conflict do nothing;

-- name: lock_thread
-- Who holds it, for a write: nobody else writes meanwhile.
select known, holder, token, expires_at from graph_thread where tenant = :tenant and id = :thread;

-- name: find_thread
-- What it is known under, for a read.
select known from graph_thread where tenant = :tenant and id = :thread;

-- name: take_thread
-- For a holder, unless the lease of another one is running.
update graph_thread set holder = :holder, token = :token, expires_at = :now + :lease_ms, updated_at = :now
where tenant = :tenant and id = :thread and (token is null or expires_at <= :now);

-- name: keep_thread
-- The lease goes on while the token is its own, also when it has ended and nobody took the thread.
update graph_thread set expires_at = :now + :lease_ms
where tenant = :tenant and id = :thread and token = :token;

-- name: leave_thread
-- Nobody holds it from here on.
update graph_thread set holder = '', token = null, expires_at = null
where tenant = :tenant and id = :thread and token = :token;

-- name: add_piece
-- One that is there already is the same: its digest says so.
insert into graph_piece (tenant, thread, digest, kind, body) values (:tenant, :thread, :digest, :kind, :body)
on conflict do nothing;

-- name: grow_chain
-- A new chain, or one that still ends where the writer thought.
insert into graph_chain (tenant, thread, id, base, shared, length)
values (:tenant, :thread, :id, :base, :shared, :length)
on conflict (tenant, thread, id) do update set length = excluded.length where graph_chain.length = :at;

-- name: add_link
-- The next one of a chain.
insert into graph_link (tenant, thread, chain, place, digest) values (:tenant, :thread, :chain, :place, :digest);

-- name: put_value
-- A version of a channel has one value.
insert into graph_value (tenant, thread, ns, channel, version, shape)
values (:tenant, :thread, :ns, :channel, :version, :shape)
on conflict do nothing;

-- name: put_checkpoint
-- The same id is the same checkpoint, written again.
insert into graph_checkpoint (
    tenant, thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run
)
values (:tenant, :thread, :ns, :id, :parent, :versions, :kind, :body, :metadata_kind, :metadata, :run)
on conflict (tenant, thread, ns, id) do update set
    parent = excluded.parent, versions = excluded.versions, kind = excluded.kind, body = excluded.body,
    metadata_kind = excluded.metadata_kind, metadata = excluded.metadata, run = excluded.run;

-- name: add_write
-- What a task has written once stays.
insert into graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
values (:tenant, :thread, :ns, :checkpoint, :task, :place, :channel, :path, :shape)
on conflict do nothing;

-- name: put_write
-- What is said again in its place, as an error or an interrupt is.
insert into graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
values (:tenant, :thread, :ns, :checkpoint, :task, :place, :channel, :path, :shape)
on conflict (tenant, thread, ns, checkpoint, task, place) do update set
    channel = excluded.channel, path = excluded.path, shape = excluded.shape;

-- name: find_checkpoint
-- One of a namespace.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from graph_checkpoint
where tenant = :tenant and thread = :thread and ns = :ns and id = :id;

-- name: last_checkpoint
-- The newest of a namespace.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from graph_checkpoint
where tenant = :tenant and thread = :thread and ns = :ns
order by id desc
limit 1;

-- name: find_checkpoints
-- Those of a thread, newest first, behind one of them.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from graph_checkpoint
where
    tenant = :tenant and thread = :thread and (:ns is null or ns = :ns) and (:before is null or id < :before)
    and (:after_id is null or (id, thread, ns) < (:after_id, :after_thread, :after_ns))
order by id desc, thread desc, ns desc
limit :limit;

-- name: find_all_checkpoints
-- Those of all threads.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from graph_checkpoint
where
    tenant = :tenant and (:ns is null or ns = :ns) and (:before is null or id < :before)
    and (:after_id is null or (id, thread, ns) < (:after_id, :after_thread, :after_ns))
order by id desc, thread desc, ns desc
limit :limit;

-- name: find_values
-- Of the versions that a checkpoint names.
select value.channel, value.shape
from json_each(:versions) as named
join graph_value as value on
    value.tenant = :tenant and value.thread = :thread and value.ns = :ns and value.channel = named.key
    and value.version = cast(named.value as text);

-- name: find_writes
-- In the order in which a superstep applies them.
select ns, checkpoint, task, place, channel, path, shape from graph_write
where tenant = :tenant and thread = :thread and ns = :ns and checkpoint = :id
order by path, task, place;

-- name: find_pieces
-- By their digests.
select piece.digest, piece.kind, piece.body
from json_each(:digests) as named
join graph_piece as piece on
    piece.tenant = :tenant and piece.thread = :thread and piece.digest = named.value;

-- name: find_links
-- The first ones of a chain, those of its bases first.
with recursive part (chain, base, shared, upto) as (
    select id, base, shared, :length from graph_chain
    where tenant = :tenant and thread = :thread and id = :chain
    union all
    select below.id, below.base, below.shared, min(part.shared, part.upto)
    from part
    join graph_chain as below on below.tenant = :tenant and below.thread = :thread and below.id = part.base
)
select link.digest
from part
join graph_link as link on
    link.tenant = :tenant and link.thread = :thread and link.chain = part.chain and link.place < part.upto
order by link.place;

-- name: find_run_checkpoints
-- What runs of the other library have made.
select checkpoint.thread, checkpoint.ns, checkpoint.id
from json_each(:runs) as named
join graph_checkpoint as checkpoint on checkpoint.tenant = :tenant and checkpoint.run = named.value;

-- name: drop_checkpoint
-- With `drop_checkpoint_writes`.
delete from graph_checkpoint where tenant = :tenant and thread = :thread and ns = :ns and id = :id;

-- name: drop_checkpoint_writes
-- What was written on top of a checkpoint goes with it.
delete from graph_write where tenant = :tenant and thread = :thread and ns = :ns and checkpoint = :id;

-- name: drop_values
-- Versions that no checkpoint of the thread names any more.
delete from graph_value
where
    tenant = :tenant and thread = :thread
    and not exists (
        select 1 from graph_checkpoint as checkpoint, json_each(checkpoint.versions) as named
        where
            checkpoint.tenant = graph_value.tenant and checkpoint.thread = graph_value.thread
            and checkpoint.ns = graph_value.ns and named.key = graph_value.channel
            and cast(named.value as text) = graph_value.version
    );

-- name: find_shapes
-- All that a thread still has, to see which pieces and links it needs.
select shape from graph_value where tenant = :tenant and thread = :thread
union all
select shape from graph_write where tenant = :tenant and thread = :thread;

-- name: find_bases
-- The chains of a thread.
select id, base, shared from graph_chain where tenant = :tenant and thread = :thread;

-- name: drop_links
-- Those of a chain behind what is needed.
delete from graph_link where tenant = :tenant and thread = :thread and chain = :chain and place >= :length;

-- name: cut_chain
-- It ends where its last link that is needed ends.
update graph_chain set length = min(length, :length) where tenant = :tenant and thread = :thread and id = :chain;

-- name: drop_chain
-- Nothing names it.
delete from graph_chain where tenant = :tenant and thread = :thread and id = :chain;

-- name: drop_pieces
-- Those that neither a shape nor a link names.
delete from graph_piece
where
    tenant = :tenant and thread = :thread
    and digest not in (select value from json_each(:digests))
    and digest not in (select digest from graph_link where tenant = :tenant and thread = :thread);

-- name: know_anew
-- What was known of the thread's values is not to be built on.
update graph_thread set known = :fresh where tenant = :tenant and id = :thread;

-- name: copy_checkpoints
-- Into another thread.
insert into graph_checkpoint (tenant, thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run)
select tenant, :target, ns, id, parent, versions, kind, body, metadata_kind, metadata, run
from graph_checkpoint where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: copy_values
-- Into another thread.
insert into graph_value (tenant, thread, ns, channel, version, shape)
select tenant, :target, ns, channel, version, shape from graph_value where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: copy_writes
-- Into another thread.
insert into graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
select tenant, :target, ns, checkpoint, task, place, channel, path, shape
from graph_write where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: copy_pieces
-- Into another thread.
insert into graph_piece (tenant, thread, digest, kind, body)
select tenant, :target, digest, kind, body from graph_piece where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: copy_chains
-- Into another thread.
insert into graph_chain (tenant, thread, id, base, shared, length)
select tenant, :target, id, base, shared, length from graph_chain where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: copy_links
-- Into another thread.
insert into graph_link (tenant, thread, chain, place, digest)
select tenant, :target, chain, place, digest from graph_link where tenant = :tenant and thread = :thread
on conflict do nothing;

-- name: drop_thread_checkpoints
-- All that a thread has.
delete from graph_checkpoint where tenant = :tenant and thread = :thread;

-- name: drop_thread_values
-- All that a thread has.
delete from graph_value where tenant = :tenant and thread = :thread;

-- name: drop_thread_writes
-- All that a thread has.
delete from graph_write where tenant = :tenant and thread = :thread;

-- name: drop_thread_pieces
-- All that a thread has.
delete from graph_piece where tenant = :tenant and thread = :thread;

-- name: drop_thread_chains
-- All that a thread has.
delete from graph_chain where tenant = :tenant and thread = :thread;

-- name: drop_thread_links
-- All that a thread has.
delete from graph_link where tenant = :tenant and thread = :thread;

-- name: drop_thread
-- A thread that nobody holds; a held one keeps its row.
delete from graph_thread where tenant = :tenant and id = :thread and (token is null or expires_at <= :now);
