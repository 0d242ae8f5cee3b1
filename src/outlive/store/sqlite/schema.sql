-- All migrations applied, as SQLite keeps it; a test compares. For reading alone: nothing executes this file.

CREATE TABLE approval (
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

CREATE TABLE blob (
    tenant text not null,
    address blob not null,
    payload text not null,
    data_class text not null default '',
    key_id text not null default '',
    created_at integer not null,
    primary key (tenant, address)
) strict;

CREATE TABLE business_key (
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

CREATE TABLE delivery (
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

CREATE TABLE delta (
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

CREATE TABLE divergence (
    tenant text not null,
    run_id text not null,
    code text not null,
    report text not null,
    at integer not null,
    primary key (tenant, run_id, code)
) strict, without rowid;

CREATE TABLE duty (
    name text primary key,
    next_at integer not null,
    owner text,
    token text,
    expires_at integer,
    done_at integer,
    report text not null default ''
) strict, without rowid;

CREATE TABLE entry (
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

CREATE TABLE graph_chain (
    tenant text not null,
    thread text not null,
    id text not null,
    base text,
    shared integer not null,
    length integer not null,
    primary key (tenant, thread, id)
) strict, without rowid;

CREATE TABLE graph_checkpoint (
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

CREATE TABLE graph_item (
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

CREATE TABLE graph_link (
    tenant text not null,
    thread text not null,
    chain text not null,
    place integer not null,
    digest text not null,
    primary key (tenant, thread, chain, place)
) strict, without rowid;

CREATE TABLE graph_piece (
    tenant text not null,
    thread text not null,
    digest text not null,
    kind text not null,
    body blob not null,
    primary key (tenant, thread, digest)
) strict;

CREATE TABLE graph_thread (
    tenant text not null,
    id text not null,
    known text not null,
    holder text not null default '',
    token text,
    expires_at integer,
    updated_at integer not null,
    primary key (tenant, id)
) strict, without rowid;

CREATE TABLE graph_value (
    tenant text not null,
    thread text not null,
    ns text not null,
    channel text not null,
    version text not null,
    shape text not null,
    primary key (tenant, thread, ns, channel, version)
) strict, without rowid;

CREATE TABLE graph_write (
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

CREATE TABLE inbox (
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

CREATE TABLE migration (
    number integer primary key,
    name text not null,
    sha256 text not null,
    applied_at integer not null
) strict;

CREATE TABLE notification (
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

CREATE TABLE operation (
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

CREATE TABLE run (
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

CREATE TABLE tenant (
    id text primary key,
    key blob not null,
    created_at integer not null
) strict, without rowid;

CREATE TABLE transcript (
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

CREATE TABLE transcript_line (
    tenant text not null,
    project text not null,
    name text not null,
    part text not null,
    place integer not null,
    uuid text,
    value text not null,
    primary key (tenant, project, name, part, place)
) strict, without rowid;

CREATE TABLE vote (
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

CREATE TABLE worker (
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

CREATE INDEX approval_of_run on approval (tenant, run_id);

CREATE INDEX approval_open on approval (tenant, asked_at) where status = 'asked';

CREATE INDEX business_key_awaited on business_key (tenant, key) where waiters <> '[]';

CREATE INDEX business_key_of_run on business_key (tenant, run_id);

CREATE INDEX business_key_settled on business_key (updated_at) where status not in ('open', 'unknown');

CREATE INDEX delivery_of_run on delivery (tenant, run_id, route, notification)
where delivered_at is null and given_up_at is null;

CREATE INDEX delivery_open on delivery (route, notification) where delivered_at is null and given_up_at is null;

CREATE INDEX delta_age on delta (created_at);

CREATE INDEX delta_of_run on delta (tenant, run_id, position);

CREATE INDEX entry_blob on entry (tenant, blob) where blob is not null;

CREATE INDEX graph_checkpoint_of_run on graph_checkpoint (tenant, run) where run is not null;

CREATE INDEX graph_item_expiry on graph_item (expires_at) where expires_at is not null;

CREATE INDEX inbox_control on inbox (tenant, run_id) where taken_seq is null and topic = 'control';

CREATE INDEX inbox_unread on inbox (tenant, run_id, id) where taken_seq is null;

CREATE INDEX notification_unrouted on notification (unrouted, position) where unrouted is not null;

CREATE INDEX operation_in_doubt on operation (tenant, updated_at) where status in ('pending', 'unknown');

CREATE INDEX operation_of_run on operation (tenant, run_id, position);

CREATE INDEX run_cancelling on run (tenant, id)
where reason = 'cancelling' and ended_at is null and paused_at is null;

CREATE INDEX run_created on run (tenant, created_at);

CREATE INDEX run_deadline on run (deadline_at) where deadline_at is not null and ended_at is null;

CREATE INDEX run_diverged on run (agent, updated_at)
where status = 'blocked' and reason in ('diverged', 'undecodable') and paused_at is null;

CREATE INDEX run_ended on run (status, ended_at, tenant, id) where ended_at is not null;

CREATE INDEX run_identity on run (tenant, identity) where identity is not null;

CREATE INDEX run_kin on run (tenant, root) where parent is not null and ended_at is null;

CREATE INDEX run_left on run (ready_at) where status = 'ready' and reason = 'diverged' and paused_at is null;

CREATE INDEX run_origin on run (tenant, origin) where origin <> id;

CREATE INDEX run_parent on run (tenant, parent) where parent is not null;

CREATE INDEX run_ready on run (queue, agent, priority desc, ready_at) where status = 'ready' and paused_at is null;

CREATE INDEX run_rolls_back on run (tenant, rolls_back) where rolls_back is not null;

CREATE INDEX run_running on run (tenant, id) where status = 'running';

CREATE INDEX run_timer on run (queue, agent, priority desc, wake_at)
where status = 'waiting' and paused_at is null and wake_at is not null;

CREATE INDEX transcript_age on transcript (tenant, updated_at);

CREATE UNIQUE INDEX transcript_line_once on transcript_line (tenant, project, name, part, uuid)
where uuid is not null;

CREATE VIEW what_has_it_done as
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

CREATE VIEW what_is_it_waiting_for as
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

CREATE VIEW who_owns_it as
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
