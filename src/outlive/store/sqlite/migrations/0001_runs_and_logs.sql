-- Runs, their logs, and what belongs to them. Times are integer milliseconds since 1970 by the database's clock.
-- Tenant is the leading key of everything that belongs to a run.

create table migration (
    number integer primary key,
    name text not null,
    sha256 text not null,
    applied_at integer not null
) strict;

create table tenant (
    id text primary key,
    key blob not null,
    created_at integer not null
) strict, without rowid;

-- `token` is null when nobody may append. `owner`, `lease_ms`, `renewed_at` and `expires_at` are the lease of a running
-- run. `ready_at` is since when a ready run waits for a worker.
create table run (
    tenant text not null,
    id text not null,
    agent text not null,
    version text not null,
    status text not null,
    epoch integer not null,
    token text,
    next_seq integer not null,
    head blob not null,
    created_at integer not null,
    updated_at integer not null,
    input_digest text not null,
    origin text not null,
    queue text not null,
    priority integer not null,
    owner text,
    lease_ms integer,
    renewed_at integer,
    expires_at integer,
    ready_at integer,
    wake_at integer,
    deadline_at integer,
    paused_at integer,
    ended_at integer,
    reason text not null default '',
    detail text not null default '',
    lapses integer not null default 0,
    prologue_seq integer,
    window_seq integer,
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
    imported_at integer,
    fork_of text,
    fork_seq integer,
    forked integer not null default 0,
    repeat_effects integer not null default 0,
    primary key (tenant, id)
) strict;

-- One index per way to be claimable, each with only the runs that are: ended and sleeping runs cost a claim nothing.
create index run_ready on run (queue, agent, priority desc, ready_at) where status = 'ready' and paused_at is null;
create index run_timer on run (queue, agent, priority desc, wake_at)
where status = 'waiting' and paused_at is null and wake_at is not null;
create index run_diverged on run (agent, updated_at)
where status = 'blocked' and reason in ('diverged', 'undecodable') and paused_at is null;
create index run_left on run (ready_at) where status = 'ready' and reason = 'diverged' and paused_at is null;
create index run_cancelling on run (tenant, id)
where reason = 'cancelling' and ended_at is null and paused_at is null;
create index run_running on run (tenant, id) where status = 'running';
create index run_deadline on run (deadline_at) where deadline_at is not null and ended_at is null;
create index run_created on run (tenant, created_at);
create index run_parent on run (tenant, parent) where parent is not null;
create index run_identity on run (tenant, identity) where identity is not null;
-- What may be forgotten, and what a run that goes on still needs: its kin, its origin, what it rolls back.
create index run_ended on run (status, ended_at, tenant, id) where ended_at is not null;
create index run_kin on run (tenant, root) where parent is not null and ended_at is null;
create index run_origin on run (tenant, origin) where origin <> id;
create index run_rolls_back on run (tenant, rolls_back) where rolls_back is not null;

create table entry (
    tenant text not null,
    run_id text not null,
    seq integer not null,
    epoch integer not null,
    kind text not null,
    version integer not null,
    at integer not null,
    scope text not null,
    key text not null,
    body text not null,
    payload text,
    blob blob,
    data_class text not null default '',
    key_id text not null default '',
    digest blob not null,
    primary key (tenant, run_id, seq)
) strict, without rowid;
-- Which entries name a blob: few have one.
create index entry_blob on entry (tenant, blob) where blob is not null;

create table blob (
    tenant text not null,
    address blob not null,
    payload text not null,
    data_class text not null default '',
    key_id text not null default '',
    created_at integer not null,
    primary key (tenant, address)
) strict;

create table operation (
    position integer primary key,
    tenant text not null,
    run_id text not null,
    id text not null,
    call text not null,
    tool text not null,
    effect text not null,
    key text not null,
    digest text not null,
    arguments text not null,
    status text not null,
    attempt integer not null,
    epoch integer not null,
    first_sent_at integer not null,
    updated_at integer not null,
    not_before integer not null default 0,
    outcome text,
    error text not null default '',
    how text not null default '',
    notes text not null default '{}',
    duplicates integer not null default 0,
    seq integer not null default 0,
    approval text not null default '',
    executed text not null default '',
    compensates text not null default '',
    compensated_by text not null default '',
    business_key text not null default '',
    shared_run text not null default '',
    shared_operation text not null default '',
    data_class text not null default '',
    key_id text not null default '',
    unique (tenant, id)
) strict;
create index operation_of_run on operation (tenant, run_id, position);
create index operation_in_doubt on operation (tenant, updated_at) where status in ('pending', 'unknown');

-- Whoever does not own the run writes here. A row is read until an append takes it (`taken_seq`), and stays to dedupe.
create table inbox (
    id integer primary key,
    tenant text not null,
    run_id text not null,
    topic text not null,
    sender_key text not null,
    body text not null,
    at integer not null,
    taken_seq integer,
    data_class text not null default '',
    key_id text not null default '',
    unique (tenant, run_id, topic, sender_key)
) strict;
create index inbox_unread on inbox (tenant, run_id, id) where taken_seq is null;
create index inbox_control on inbox (tenant, run_id) where taken_seq is null and topic = 'control';

create table worker (
    owner text primary key,
    pid integer not null,
    serves text not null,
    versions text not null default '{}',
    started_at integer not null,
    seen_at integer not null,
    stalled_at integer,
    stalled_by text not null default '',
    skew_ms integer
) strict, without rowid;

create table divergence (
    tenant text not null,
    run_id text not null,
    code text not null,
    report text not null,
    at integer not null,
    primary key (tenant, run_id, code)
) strict, without rowid;

-- What belongs to no run and one worker at a time does. `token` is null, or the lease has expired, when nobody is at it.
create table duty (
    name text primary key,
    next_at integer not null,
    owner text,
    token text,
    expires_at integer,
    done_at integer,
    report text not null default ''
) strict, without rowid;

-- Each approval is decided here, under its own row's lock; logs copy what it says. `votes` and `status` change at each
-- act. `proposed` and `executed` are digests of arguments, `edited` those that were approved where they are others.
create table approval (
    tenant text not null,
    run_id text not null,
    id text not null,
    operation text not null,
    tool text not null,
    shown text not null,
    arguments text not null,
    proposed text not null,
    policy text not null,
    role text not null,
    quorum integer not null,
    requester text not null default '',
    asked_at integer not null,
    expires_at integer not null,
    status text not null,
    votes integer not null default 0,
    executed text not null default '',
    edited text,
    why text not null default '',
    decided_at integer,
    used_at integer,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, id)
) strict;
create index approval_open on approval (tenant, asked_at) where status = 'asked';
create index approval_of_run on approval (tenant, run_id);

-- A business key (`key` is a keyed digest of its text): which operation has it, and what became of that. It outlives the
-- run. `waiters` are runs to be woken at its next change; `changes` counts those, so that none of them is missed.
create table business_key (
    tenant text not null,
    key text not null,
    shown text not null,
    tool text not null,
    digest text not null,
    run_id text not null,
    operation text not null,
    status text not null,
    outcome text,
    error text not null default '',
    waiters text not null default '[]',
    changes integer not null default 0,
    created_at integer not null,
    updated_at integer not null,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, key)
) strict;
create index business_key_of_run on business_key (tenant, run_id);
create index business_key_awaited on business_key (tenant, key) where waiters <> '[]';
create index business_key_settled on business_key (updated_at) where status not in ('open', 'unknown');

-- What one person did about an approval: each does one thing.
create table vote (
    tenant text not null,
    approval text not null,
    number integer not null,
    who text not null,
    act text not null,
    role text not null default '',
    place text not null default '',
    to_whom text not null default '',
    why text not null default '',
    digest text not null default '',
    edited text,
    nonce text not null default '',
    at integer not null,
    data_class text not null default '',
    key_id text not null default '',
    primary key (tenant, approval, number)
) strict;

-- What somebody has to be told, from the commit that it tells of; no fact twice. `unrouted` is
-- *new*, or *kept* while no route takes it, or null.
create table notification (
    position integer primary key,
    tenant text not null,
    run_id text not null,
    seq integer not null,
    kind text not null,
    id text not null unique,
    role text not null default '',
    facts text not null,
    created_at integer not null,
    unrouted text default 'new',
    unique (tenant, run_id, seq, kind)
) strict;
create index notification_unrouted on notification (unrouted, position) where unrouted is not null;

-- A notification on its way over one route. It is open until it was delivered or given up.
create table delivery (
    notification integer not null,
    route text not null,
    tenant text not null,
    run_id text not null,
    attempts integer not null default 0,
    next_at integer not null,
    failing_since integer,
    delivered_at integer,
    given_up_at integer,
    error text not null default '',
    primary key (notification, route)
) strict, without rowid;
create index delivery_open on delivery (route, notification) where delivered_at is null and given_up_at is null;
create index delivery_of_run on delivery (tenant, run_id, route, notification)
where delivered_at is null and given_up_at is null;

-- Text of a call that is being made, for whoever follows the run; taken away when the call has its record. No fact: what
-- counts is in the log. It was made when the log had the entries before `after_seq`. A position is never used again.
create table delta (
    position integer primary key autoincrement,
    tenant text not null,
    run_id text not null,
    call text not null,
    epoch integer not null,
    attempt integer not null,
    name text not null,
    after_seq integer not null,
    place integer not null,
    text text not null,
    created_at integer not null
) strict;
create index delta_of_run on delta (tenant, run_id, position);
create index delta_age on delta (created_at);

-- Checkpoints of graphs that another library runs (`outlive.langgraph`). Bytes are that library's; nothing here reads
-- them. `token` is null when nobody holds the thread; `known` changes when values of the thread are taken away.
create table graph_thread (
    tenant text not null,
    id text not null,
    known text not null,
    holder text not null default '',
    token text,
    expires_at integer,
    updated_at integer not null,
    primary key (tenant, id)
) strict, without rowid;

create table graph_checkpoint (
    tenant text not null,
    thread text not null,
    ns text not null,
    id text not null,
    parent text,
    versions text not null,
    kind text not null,
    body blob not null,
    metadata_kind text not null,
    metadata blob not null,
    run text,
    primary key (tenant, thread, ns, id)
) strict, without rowid;
create index graph_checkpoint_of_run on graph_checkpoint (tenant, run) where run is not null;

create table graph_value (
    tenant text not null,
    thread text not null,
    ns text not null,
    channel text not null,
    version text not null,
    shape text not null,
    primary key (tenant, thread, ns, channel, version)
) strict, without rowid;

create table graph_write (
    tenant text not null,
    thread text not null,
    ns text not null,
    checkpoint text not null,
    task text not null,
    place integer not null,
    channel text not null,
    path text not null,
    shape text not null,
    primary key (tenant, thread, ns, checkpoint, task, place)
) strict, without rowid;

-- A value, or a part of one, once in its thread: by its keyed digest.
create table graph_piece (
    tenant text not null,
    thread text not null,
    digest text not null,
    kind text not null,
    body blob not null,
    primary key (tenant, thread, digest)
) strict;

-- A list that grows: the first `shared` links are those of `base`.
create table graph_chain (
    tenant text not null,
    thread text not null,
    id text not null,
    base text,
    shared integer not null,
    length integer not null,
    primary key (tenant, thread, id)
) strict, without rowid;

create table graph_link (
    tenant text not null,
    thread text not null,
    chain text not null,
    place integer not null,
    digest text not null,
    primary key (tenant, thread, chain, place)
) strict, without rowid;

-- Values that graphs remember across threads, by namespace and key. `expires_at` is null for what is kept.
create table graph_item (
    tenant text not null,
    prefix text not null,
    key text not null,
    value text not null,
    created_at integer not null,
    updated_at integer not null,
    ttl_ms integer,
    expires_at integer,
    primary key (tenant, prefix, key)
) strict, without rowid;
create index graph_item_expiry on graph_item (expires_at) where expires_at is not null;

-- What agents of another library have said, mirrored by whoever runs them (`outlive.claude`). Lines are opaque. `token`
-- is drawn by each write of a part: the next one has to know it.
create table transcript (
    tenant text not null,
    project text not null,
    name text not null,
    part text not null,
    token text not null,
    length integer not null,
    summary text,
    updated_at integer not null,
    primary key (tenant, project, name, part)
) strict, without rowid;
create index transcript_age on transcript (tenant, updated_at);

create table transcript_line (
    tenant text not null,
    project text not null,
    name text not null,
    part text not null,
    place integer not null,
    uuid text,
    value text not null,
    primary key (tenant, project, name, part, place)
) strict, without rowid;
create unique index transcript_line_once on transcript_line (tenant, project, name, part, uuid)
where uuid is not null;

-- For people. Their columns do not change.

create view who_owns_it as
select
    run.tenant,
    run.id as run,
    run.agent,
    run.version,
    run.status,
    run.owner,
    worker.pid,
    run.epoch,
    strftime('%Y-%m-%dT%H:%M:%SZ', run.renewed_at / 1000, 'unixepoch') as renewed,
    strftime('%Y-%m-%dT%H:%M:%SZ', run.expires_at / 1000, 'unixepoch') as lease_ends
from run
left join worker on worker.owner = run.owner
where run.ended_at is null;

create view what_has_it_done as
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
    strftime('%Y-%m-%dT%H:%M:%SZ', operation.first_sent_at / 1000, 'unixepoch') as first_sent,
    strftime('%Y-%m-%dT%H:%M:%SZ', operation.updated_at / 1000, 'unixepoch') as updated,
    nullif(operation.compensates, '') as compensates,
    nullif(operation.compensated_by, '') as compensated_by,
    nullif(operation.shared_run, '') as shared_run,
    nullif(operation.shared_operation, '') as shared_operation
from operation;

create view what_is_it_waiting_for as
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
    strftime('%Y-%m-%dT%H:%M:%SZ', coalesce(run.paused_at, run.updated_at) / 1000, 'unixepoch') as since,
    strftime('%Y-%m-%dT%H:%M:%SZ', coalesce(run.wake_at, run.expires_at) / 1000, 'unixepoch') as until,
    strftime('%Y-%m-%dT%H:%M:%SZ', run.deadline_at / 1000, 'unixepoch') as deadline,
    (
        select count(*) from inbox
        where inbox.tenant = run.tenant and inbox.run_id = run.id and inbox.taken_seq is null
    ) as unread
from run
where run.ended_at is null;
