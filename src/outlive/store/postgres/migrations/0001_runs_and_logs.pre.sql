-- Runs, their logs, and what belongs to them. Times are bigint milliseconds since 1970 by the database's clock; what the
-- chain covers is text, so that its bytes come back unchanged. Tenant is the leading key of everything that belongs to a
-- run. Names are compared byte by byte, so that every process locks runs in one order.

create table {schema}.tenant (
    id text collate "C" primary key,
    key bytea not null,
    created_at bigint not null
);

-- `token` is null when nobody may append. `owner`, `lease_ms`, `renewed_at` and `expires_at` are the lease of a running
-- run. `ready_at` is since when a ready run waits for a worker. Half of each page is left free: an append and a renewal
-- change no column that an index has, and find room for the new version of the row beside the old one.
create table {schema}.run (
    tenant text collate "C" not null,
    id text collate "C" not null,
    agent text collate "C" not null,
    version text not null,
    status text not null,
    epoch bigint not null,
    token text,
    next_seq bigint not null,
    head bytea not null,
    created_at bigint not null,
    updated_at bigint not null,
    input_digest text not null,
    origin text collate "C" not null,
    queue text collate "C" not null,
    priority bigint not null,
    owner text,
    lease_ms bigint,
    renewed_at bigint,
    expires_at bigint,
    ready_at bigint,
    wake_at bigint,
    deadline_at bigint,
    paused_at bigint,
    ended_at bigint,
    reason text not null default '',
    detail text not null default '',
    lapses bigint not null default 0,
    prologue_seq bigint,
    window_seq bigint,
    principal text not null default '',
    purpose text not null default '',
    grants text not null default '',
    identity text,
    root text,
    parent text,
    rolls_back text,
    phase text not null default '',
    pin text,
    traceparent text not null default '',
    labels text not null default '{}',
    imported_at bigint,
    fork_of text collate "C",
    fork_seq bigint,
    forked bigint not null default 0,
    repeat_effects bigint not null default 0,
    primary key (tenant, id)
) with (fillfactor = 50);

-- One index per way to be claimable, each with only the runs that are: ended and sleeping runs cost a claim nothing.
create index run_ready on {schema}.run (queue, agent, priority desc, ready_at)
where status = 'ready' and paused_at is null;
create index run_timer on {schema}.run (queue, agent, priority desc, wake_at)
where status = 'waiting' and paused_at is null and wake_at is not null;
create index run_diverged on {schema}.run (agent, priority desc, id)
where status = 'blocked' and reason in ('diverged', 'undecodable') and paused_at is null;
create index run_left on {schema}.run (ready_at)
where status = 'ready' and reason = 'diverged' and paused_at is null;
create index run_cancelling on {schema}.run (tenant, id)
where reason = 'cancelling' and ended_at is null and paused_at is null;
create index run_running on {schema}.run (tenant, id) where status = 'running';
create index run_deadline on {schema}.run (deadline_at) where deadline_at is not null and ended_at is null;
-- Not led by the tenant: on a table without statistics it would be as good as the key, to find one run by.
create index run_created on {schema}.run (created_at, id, tenant);
create index run_parent on {schema}.run (tenant, parent) where parent is not null;
create index run_identity on {schema}.run (tenant, identity) where identity is not null;
-- What may be forgotten, and what a run that goes on still needs: its kin, its origin, what it rolls back. No column of
-- these is changed by an append or a renewal.
create index run_ended on {schema}.run (status, ended_at, tenant, id) where ended_at is not null;
create index run_kin on {schema}.run (tenant, root) where parent is not null and ended_at is null;
create index run_origin on {schema}.run (tenant, origin) where origin <> id;
create index run_rolls_back on {schema}.run (tenant, rolls_back) where rolls_back is not null;

create table {schema}.entry (
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    seq bigint not null,
    epoch bigint not null,
    kind text not null,
    version bigint not null,
    at bigint not null,
    scope text not null,
    key text not null,
    body text not null,
    payload text,
    blob bytea,
    data_class text not null default '',
    key_id text not null default '',
    digest bytea not null,
    primary key (tenant, run_id, seq)
);
-- Which entries name a blob: few have one.
create index entry_blob on {schema}.entry (tenant, blob) where blob is not null;

create table {schema}.blob (
    tenant text collate "C" not null,
    address bytea not null,
    payload text not null,
    data_class text not null default '',
    key_id text not null default '',
    created_at bigint not null,
    primary key (tenant, address)
);

create table {schema}.operation (
    position bigint generated always as identity,
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    id text collate "C" not null,
    call text not null,
    tool text not null,
    effect text not null,
    key text not null,
    digest text not null,
    arguments text not null,
    status text not null,
    attempt bigint not null,
    epoch bigint not null,
    first_sent_at bigint not null,
    updated_at bigint not null,
    not_before bigint not null default 0,
    outcome text,
    error text not null default '',
    how text not null default '',
    notes text not null default '{}',
    duplicates bigint not null default 0,
    seq bigint not null default 0,
    approval text not null default '',
    executed text not null default '',
    compensates text not null default '',
    compensated_by text not null default '',
    business_key text not null default '',
    shared_run text not null default '',
    shared_operation text not null default '',
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, id)
);
create index operation_of_run on {schema}.operation (tenant, run_id, position);
create index operation_in_doubt on {schema}.operation (tenant, updated_at) where status in ('pending', 'unknown');

-- Whoever does not own the run writes here. A row is read until an append takes it (`taken_seq`), and stays to dedupe.
create table {schema}.inbox (
    id bigint generated always as identity primary key,
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    topic text not null,
    sender_key text not null,
    body text not null,
    at bigint not null,
    taken_seq bigint,
    data_class text not null default '',
    key_id text not null default '',
    unique (tenant, run_id, topic, sender_key)
);
create index inbox_unread on {schema}.inbox (tenant, run_id, id) where taken_seq is null;
create index inbox_control on {schema}.inbox (tenant, run_id) where taken_seq is null and topic = 'control';

-- `knows` is the newest migration that the worker's release has.
create table {schema}.worker (
    owner text collate "C" primary key,
    pid bigint not null,
    serves text not null,
    versions text not null default '{}',
    knows bigint not null,
    started_at bigint not null,
    seen_at bigint not null,
    stalled_at bigint,
    stalled_by text not null default '',
    skew_ms bigint
);

create table {schema}.divergence (
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    code text collate "C" not null,
    report text not null,
    at bigint not null,
    primary key (tenant, run_id, code)
);

-- What belongs to no run and one worker at a time does. `token` is null, or the lease has expired, when nobody is at it.
create table {schema}.duty (
    name text collate "C" primary key,
    next_at bigint not null,
    owner text,
    token text,
    expires_at bigint,
    done_at bigint,
    report text not null default ''
);

-- Each approval is decided here, under its own row's lock; logs copy what it says. `votes` and `status` change at each
-- act. `proposed` and `executed` are digests of arguments, `edited` those that were approved where they are others.
create table {schema}.approval (
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    id text collate "C" not null,
    operation text not null,
    tool text not null,
    shown text not null,
    arguments text not null,
    proposed text not null,
    policy text not null,
    role text not null,
    quorum bigint not null,
    requester text not null default '',
    asked_at bigint not null,
    expires_at bigint not null,
    status text not null,
    votes bigint not null default 0,
    executed text not null default '',
    edited text,
    why text not null default '',
    decided_at bigint,
    used_at bigint,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, id)
);
create index approval_open on {schema}.approval (tenant, asked_at) where status = 'asked';
create index approval_of_run on {schema}.approval (tenant, run_id);

-- A business key (`key` is a keyed digest of its text): which operation has it, and what became of that. It outlives the
-- run. `waiters` are runs to be woken at its next change; `changes` counts those, so that none of them is missed.
create table {schema}.business_key (
    tenant text collate "C" not null,
    key text collate "C" not null,
    shown text not null,
    tool text not null,
    digest text not null,
    run_id text collate "C" not null,
    operation text not null,
    status text not null,
    outcome text,
    error text not null default '',
    waiters text not null default '[]',
    changes bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, key)
);
create index business_key_of_run on {schema}.business_key (tenant, run_id);
create index business_key_awaited on {schema}.business_key (tenant, key) where waiters <> '[]';
create index business_key_settled on {schema}.business_key (updated_at) where status not in ('open', 'unknown');

-- What one person did about an approval: each does one thing.
create table {schema}.vote (
    tenant text collate "C" not null,
    approval text collate "C" not null,
    number bigint not null,
    who text not null,
    act text not null,
    role text not null default '',
    place text not null default '',
    to_whom text not null default '',
    why text not null default '',
    digest text not null default '',
    edited text,
    nonce text not null default '',
    at bigint not null,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, approval, number)
);

-- What somebody has to be told, from the commit that it tells of; no fact twice. `unrouted` is
-- *new*, or *kept* while no route takes it, or null.
create table {schema}.notification (
    position bigint generated always as identity primary key,
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    seq bigint not null,
    kind text collate "C" not null,
    id text collate "C" not null unique,
    role text not null default '',
    facts text not null,
    created_at bigint not null,
    unrouted text default 'new',
    unique (tenant, run_id, seq, kind)
);
create index notification_unrouted on {schema}.notification (unrouted, position) where unrouted is not null;

-- A notification on its way over one route. It is open until it was delivered or given up.
create table {schema}.delivery (
    notification bigint not null,
    route text collate "C" not null,
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    attempts bigint not null default 0,
    next_at bigint not null,
    failing_since bigint,
    delivered_at bigint,
    given_up_at bigint,
    error text not null default '',
    primary key (notification, route)
);
create index delivery_open on {schema}.delivery (route, notification)
where delivered_at is null and given_up_at is null;
create index delivery_of_run on {schema}.delivery (tenant, run_id, route, notification)
where delivered_at is null and given_up_at is null;

-- Text of a call that is being made, for whoever follows the run; taken away when the call has its record. No fact: what
-- counts is in the log. It was made when the log had the entries before `after_seq`. A server that crashes forgets it.
create unlogged table {schema}.delta (
    position bigint generated always as identity primary key,
    tenant text collate "C" not null,
    run_id text collate "C" not null,
    call text collate "C" not null,
    epoch bigint not null,
    attempt bigint not null,
    name text not null,
    after_seq bigint not null,
    place bigint not null,
    text text not null,
    created_at bigint not null
);
create index delta_of_run on {schema}.delta (tenant, run_id, position);
create index delta_age on {schema}.delta (created_at);

-- Checkpoints of graphs that another library runs (`outlive.langgraph`). Bytes are that library's; nothing here reads
-- them. `token` is null when nobody holds the thread; `known` changes when values of the thread are taken away.
create table {schema}.graph_thread (
    tenant text collate "C" not null,
    id text collate "C" not null,
    known text not null,
    holder text not null default '',
    token text,
    expires_at bigint,
    updated_at bigint not null,
    primary key (tenant, id)
);

create table {schema}.graph_checkpoint (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    ns text collate "C" not null,
    id text collate "C" not null,
    parent text collate "C",
    versions text not null,
    kind text not null,
    body bytea not null,
    metadata_kind text not null,
    metadata bytea not null,
    run text collate "C",
    primary key (tenant, thread, ns, id)
);
create index graph_checkpoint_of_run on {schema}.graph_checkpoint (tenant, run) where run is not null;

create table {schema}.graph_value (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    ns text collate "C" not null,
    channel text collate "C" not null,
    version text collate "C" not null,
    shape text not null,
    primary key (tenant, thread, ns, channel, version)
);

create table {schema}.graph_write (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    ns text collate "C" not null,
    checkpoint text collate "C" not null,
    task text collate "C" not null,
    place bigint not null,
    channel text collate "C" not null,
    path text collate "C" not null,
    shape text not null,
    primary key (tenant, thread, ns, checkpoint, task, place)
);

-- A value, or a part of one, once in its thread: by its keyed digest.
create table {schema}.graph_piece (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    digest text collate "C" not null,
    kind text not null,
    body bytea not null,
    primary key (tenant, thread, digest)
);

-- A list that grows: the first `shared` links are those of `base`.
create table {schema}.graph_chain (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    id text collate "C" not null,
    base text collate "C",
    shared bigint not null,
    length bigint not null,
    primary key (tenant, thread, id)
);

create table {schema}.graph_link (
    tenant text collate "C" not null,
    thread text collate "C" not null,
    chain text collate "C" not null,
    place bigint not null,
    digest text collate "C" not null,
    primary key (tenant, thread, chain, place)
);

-- Values that graphs remember across threads, by namespace and key. `expires_at` is null for what is kept.
create table {schema}.graph_item (
    tenant text collate "C" not null,
    prefix text collate "C" not null,
    key text collate "C" not null,
    value text not null,
    created_at bigint not null,
    updated_at bigint not null,
    ttl_ms bigint,
    expires_at bigint,
    primary key (tenant, prefix, key)
);
create index graph_item_expiry on {schema}.graph_item (expires_at) where expires_at is not null;

-- What agents of another library have said, mirrored by whoever runs them (`outlive.claude`). Lines are opaque. `token`
-- is drawn by each write of a part: the next one has to know it.
create table {schema}.transcript (
    tenant text collate "C" not null,
    project text collate "C" not null,
    name text collate "C" not null,
    part text collate "C" not null,
    token text not null,
    length bigint not null,
    summary text,
    updated_at bigint not null,
    primary key (tenant, project, name, part)
);
create index transcript_age on {schema}.transcript (tenant, updated_at);

create table {schema}.transcript_line (
    tenant text collate "C" not null,
    project text collate "C" not null,
    name text collate "C" not null,
    part text collate "C" not null,
    place bigint not null,
    uuid text collate "C",
    value text not null,
    primary key (tenant, project, name, part, place)
);
create unique index transcript_line_once on {schema}.transcript_line (tenant, project, name, part, uuid)
where uuid is not null;

-- For people. Their columns do not change.

create view {schema}.who_owns_it as
select
    run.tenant,
    run.id as run,
    run.agent,
    run.version,
    run.status,
    run.owner,
    worker.pid,
    run.epoch,
    to_char(to_timestamp(run.renewed_at / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as renewed,
    to_char(to_timestamp(run.expires_at / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as lease_ends
from {schema}.run
left join {schema}.worker on worker.owner = run.owner
where run.ended_at is null;

create view {schema}.what_has_it_done as
select
    operation.tenant,
    operation.run_id as run,
    operation.id as operation,
    operation.tool,
    operation.effect,
    operation.arguments,
    operation.status,
    operation.attempt,
    operation.outcome,
    operation.error,
    operation.how,
    operation.key as idempotency_key,
    to_char(to_timestamp(operation.first_sent_at / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as first_sent,
    to_char(to_timestamp(operation.updated_at / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as updated,
    nullif(operation.compensates, '') as compensates,
    nullif(operation.compensated_by, '') as compensated_by,
    nullif(operation.shared_run, '') as shared_run,
    nullif(operation.shared_operation, '') as shared_operation
from {schema}.operation;

create view {schema}.what_is_it_waiting_for as
select
    run.tenant,
    run.id as run,
    run.agent,
    run.status,
    case
        when run.paused_at is not null then 'an operator, who paused it'
        when run.status = 'ready' then 'a worker that serves ' || run.agent || coalesce(' version ' || run.pin, '')
        when run.status = 'running' then 'its owner, or a takeover when the lease has ended'
        when run.status = 'blocked' then 'a person: ' || run.reason
        when run.reason <> '' then run.reason
        when run.wake_at is not null then 'a timer'
        else 'a message'
    end as waits_for,
    run.detail,
    to_char(
        to_timestamp(coalesce(run.paused_at, run.updated_at) / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'
    ) as since,
    to_char(
        to_timestamp(coalesce(run.wake_at, run.expires_at) / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'
    ) as until,
    to_char(to_timestamp(run.deadline_at / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as deadline,
    (
        select count(*) from {schema}.inbox
        where inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null
    ) as unread
from {schema}.run
where run.ended_at is null;
