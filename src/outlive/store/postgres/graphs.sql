-- Checkpoints of graphs that another library runs. Names are those of the other stores; words in braces are as in
-- queries.sql.

-- name: add_thread
-- The row that a thread is held and locked by.
insert into {schema}.graph_thread (tenant, id, known, updated_at) values (%(tenant)s, %(thread)s, %(fresh)s, {moment})
on conflict do nothing;

-- name: lock_thread
-- Who holds it, for a write: nobody else writes meanwhile.
-- Differs: it is locked, and the time is the database's.
select known, holder, token, expires_at, {moment} as now
from {schema}.graph_thread where tenant = %(tenant)s and id = %(thread)s
for no key update;

-- name: find_thread
-- What it is known under, for a read.
select known from {schema}.graph_thread where tenant = %(tenant)s and id = %(thread)s;

-- name: take_thread
-- For a holder, unless the lease of another one is running.
update {schema}.graph_thread
set holder = %(holder)s, token = %(token)s, expires_at = {moment} + %(lease_ms)s::bigint, updated_at = {moment}
where tenant = %(tenant)s and id = %(thread)s and (token is null or expires_at <= {moment});

-- name: keep_thread
-- The lease goes on while the token is its own, also when it has ended and nobody took the thread.
update {schema}.graph_thread set expires_at = {moment} + %(lease_ms)s::bigint
where tenant = %(tenant)s and id = %(thread)s and token = %(token)s;

-- name: leave_thread
-- Nobody holds it from here on.
update {schema}.graph_thread set holder = '', token = null, expires_at = null
where tenant = %(tenant)s and id = %(thread)s and token = %(token)s;

-- name: add_piece
-- One that is there already is the same: its digest says so.
insert into {schema}.graph_piece (tenant, thread, digest, kind, body)
values (%(tenant)s, %(thread)s, %(digest)s, %(kind)s, %(body)s::bytea)
on conflict do nothing;

-- name: grow_chain
-- A new chain, or one that still ends where the writer thought.
insert into {schema}.graph_chain (tenant, thread, id, base, shared, length)
values (%(tenant)s, %(thread)s, %(id)s, %(base)s::text, %(shared)s::bigint, %(length)s::bigint)
on conflict (tenant, thread, id) do update set length = excluded.length where graph_chain.length = %(at)s::bigint;

-- name: add_link
-- The next one of a chain.
insert into {schema}.graph_link (tenant, thread, chain, place, digest)
values (%(tenant)s, %(thread)s, %(chain)s, %(place)s::bigint, %(digest)s);

-- name: put_value
-- A version of a channel has one value.
insert into {schema}.graph_value (tenant, thread, ns, channel, version, shape)
values (%(tenant)s, %(thread)s, %(ns)s, %(channel)s, %(version)s, %(shape)s)
on conflict do nothing;

-- name: put_checkpoint
-- The same id is the same checkpoint, written again.
insert into {schema}.graph_checkpoint (
    tenant, thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run
)
values (%(tenant)s, %(thread)s, %(ns)s, %(id)s, %(parent)s::text, %(versions)s, %(kind)s, %(body)s::bytea,
    %(metadata_kind)s, %(metadata)s::bytea, %(run)s::text)
on conflict (tenant, thread, ns, id) do update set
    parent = excluded.parent, versions = excluded.versions, kind = excluded.kind, body = excluded.body,
    metadata_kind = excluded.metadata_kind, metadata = excluded.metadata, run = excluded.run;

-- name: add_write
-- What a task has written once stays.
insert into {schema}.graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
values (%(tenant)s, %(thread)s, %(ns)s, %(checkpoint)s, %(task)s, %(place)s::bigint, %(channel)s, %(path)s, %(shape)s)
on conflict do nothing;

-- name: put_write
-- What is said again in its place, as an error or an interrupt is.
insert into {schema}.graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
values (%(tenant)s, %(thread)s, %(ns)s, %(checkpoint)s, %(task)s, %(place)s::bigint, %(channel)s, %(path)s, %(shape)s)
on conflict (tenant, thread, ns, checkpoint, task, place) do update set
    channel = excluded.channel, path = excluded.path, shape = excluded.shape;

-- name: find_checkpoint
-- One of a namespace.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from {schema}.graph_checkpoint
where tenant = %(tenant)s and thread = %(thread)s and ns = %(ns)s and id = %(id)s;

-- name: last_checkpoint
-- The newest of a namespace.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from {schema}.graph_checkpoint
where tenant = %(tenant)s and thread = %(thread)s and ns = %(ns)s
order by id desc
limit 1;

-- name: find_checkpoints
-- Those of a thread, newest first, behind one of them.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from {schema}.graph_checkpoint
where
    tenant = %(tenant)s and thread = %(thread)s and (%(ns)s::text is null or ns = %(ns)s::text)
    and (%(before)s::text is null or id < %(before)s::text)
    and (
        %(after_id)s::text is null
        or (id, thread, ns) < (%(after_id)s::text, %(after_thread)s::text, %(after_ns)s::text)
    )
order by id desc, thread desc, ns desc
limit %(limit)s::bigint;

-- name: find_all_checkpoints
-- Those of all threads.
select thread, ns, id, parent, versions, kind, body, metadata_kind, metadata, run from {schema}.graph_checkpoint
where
    tenant = %(tenant)s and (%(ns)s::text is null or ns = %(ns)s::text)
    and (%(before)s::text is null or id < %(before)s::text)
    and (
        %(after_id)s::text is null
        or (id, thread, ns) < (%(after_id)s::text, %(after_thread)s::text, %(after_ns)s::text)
    )
order by id desc, thread desc, ns desc
limit %(limit)s::bigint;

-- name: find_values
-- Of the versions that a checkpoint names.
select value.channel, value.shape
from jsonb_each_text(%(versions)s::jsonb) as named (channel, version)
join {schema}.graph_value as value on
    value.tenant = %(tenant)s and value.thread = %(thread)s and value.ns = %(ns)s and value.channel = named.channel
    and value.version = named.version;

-- name: find_writes
-- In the order in which a superstep applies them.
select ns, checkpoint, task, place, channel, path, shape from {schema}.graph_write
where tenant = %(tenant)s and thread = %(thread)s and ns = %(ns)s and checkpoint = %(id)s
order by path, task, place;

-- name: find_pieces
-- By their digests.
select piece.digest, piece.kind, piece.body
from {schema}.graph_piece as piece
where piece.tenant = %(tenant)s and piece.thread = %(thread)s and piece.digest = any(%(digests)s::text[]);

-- name: find_links
-- The first ones of a chain, those of its bases first.
with recursive part (chain, base, shared, upto) as (
    select id, base, shared, %(length)s::bigint from {schema}.graph_chain
    where tenant = %(tenant)s and thread = %(thread)s and id = %(chain)s
    union all
    select below.id, below.base, below.shared, least(part.shared, part.upto)
    from part
    join {schema}.graph_chain as below on below.tenant = %(tenant)s and below.thread = %(thread)s
        and below.id = part.base
)
select link.digest
from part
join {schema}.graph_link as link on
    link.tenant = %(tenant)s and link.thread = %(thread)s and link.chain = part.chain and link.place < part.upto
order by link.place;

-- name: find_run_checkpoints
-- What runs of the other library have made.
select checkpoint.thread, checkpoint.ns, checkpoint.id
from {schema}.graph_checkpoint as checkpoint
where checkpoint.tenant = %(tenant)s and checkpoint.run = any(%(runs)s::text[]);

-- name: drop_checkpoint
-- With `drop_checkpoint_writes`.
delete from {schema}.graph_checkpoint where tenant = %(tenant)s and thread = %(thread)s and ns = %(ns)s and id = %(id)s;

-- name: drop_checkpoint_writes
-- What was written on top of a checkpoint goes with it.
delete from {schema}.graph_write
where tenant = %(tenant)s and thread = %(thread)s and ns = %(ns)s and checkpoint = %(id)s;

-- name: drop_values
-- Versions that no checkpoint of the thread names any more.
delete from {schema}.graph_value
where
    tenant = %(tenant)s and thread = %(thread)s
    and not exists (
        select 1

        from {schema}.graph_checkpoint as checkpoint,
            jsonb_each_text(checkpoint.versions::jsonb) as named (channel, version)
        where
            checkpoint.tenant = graph_value.tenant and checkpoint.thread = graph_value.thread
            and checkpoint.ns = graph_value.ns and named.channel = graph_value.channel
            and named.version = graph_value.version
    );

-- name: find_shapes
-- All that a thread still has, to see which pieces and links it needs.
select shape from {schema}.graph_value where tenant = %(tenant)s and thread = %(thread)s
union all
select shape from {schema}.graph_write where tenant = %(tenant)s and thread = %(thread)s;

-- name: find_bases
-- The chains of a thread.
select id, base, shared from {schema}.graph_chain where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_links
-- Those of a chain behind what is needed.
delete from {schema}.graph_link
where tenant = %(tenant)s and thread = %(thread)s and chain = %(chain)s and place >= %(length)s::bigint;

-- name: cut_chain
-- It ends where its last link that is needed ends.
update {schema}.graph_chain
set length = least(length, %(length)s::bigint) where tenant = %(tenant)s and thread = %(thread)s and id = %(chain)s;

-- name: drop_chain
-- Nothing names it.
delete from {schema}.graph_chain where tenant = %(tenant)s and thread = %(thread)s and id = %(chain)s;

-- name: drop_pieces
-- Those that neither a shape nor a link names.
delete from {schema}.graph_piece
where
    tenant = %(tenant)s and thread = %(thread)s
    and digest not in (select unnest(%(digests)s::text[]))
    and digest not in (select digest from {schema}.graph_link where tenant = %(tenant)s and thread = %(thread)s);

-- name: know_anew
-- What was known of the thread's values is not to be built on.
update {schema}.graph_thread set known = %(fresh)s where tenant = %(tenant)s and id = %(thread)s;

-- name: copy_checkpoints
-- Into another thread.
insert into {schema}.graph_checkpoint (tenant, thread, ns, id, parent, versions, kind, body, metadata_kind, metadata,
    run)
select tenant, %(target)s, ns, id, parent, versions, kind, body, metadata_kind, metadata, run
from {schema}.graph_checkpoint where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: copy_values
-- Into another thread.
insert into {schema}.graph_value (tenant, thread, ns, channel, version, shape)
select tenant, %(target)s, ns, channel, version, shape
from {schema}.graph_value where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: copy_writes
-- Into another thread.
insert into {schema}.graph_write (tenant, thread, ns, checkpoint, task, place, channel, path, shape)
select tenant, %(target)s, ns, checkpoint, task, place, channel, path, shape
from {schema}.graph_write where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: copy_pieces
-- Into another thread.
insert into {schema}.graph_piece (tenant, thread, digest, kind, body)
select tenant, %(target)s, digest, kind, body
from {schema}.graph_piece where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: copy_chains
-- Into another thread.
insert into {schema}.graph_chain (tenant, thread, id, base, shared, length)
select tenant, %(target)s, id, base, shared, length
from {schema}.graph_chain where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: copy_links
-- Into another thread.
insert into {schema}.graph_link (tenant, thread, chain, place, digest)
select tenant, %(target)s, chain, place, digest
from {schema}.graph_link where tenant = %(tenant)s and thread = %(thread)s
on conflict do nothing;

-- name: drop_thread_checkpoints
-- All that a thread has.
delete from {schema}.graph_checkpoint where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread_values
-- All that a thread has.
delete from {schema}.graph_value where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread_writes
-- All that a thread has.
delete from {schema}.graph_write where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread_pieces
-- All that a thread has.
delete from {schema}.graph_piece where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread_chains
-- All that a thread has.
delete from {schema}.graph_chain where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread_links
-- All that a thread has.
delete from {schema}.graph_link where tenant = %(tenant)s and thread = %(thread)s;

-- name: drop_thread
-- A thread that nobody holds; a held one keeps its row.
delete from {schema}.graph_thread
where tenant = %(tenant)s and id = %(thread)s and (token is null or expires_at <= {moment});
