-- Notifications and their deliveries. Names are those of the other stores; words in braces are as in queries.sql. A
-- delivery is open until it was delivered or given up.

-- name: nearing
-- What was told of once has its notification. A tenth of its time is little for a run that has little.
select run.tenant, run.id, run.status, run.reason, run.deadline_at, run.deadline_at - {now} as left_ms
from {schema}.run
where
    run.deadline_at is not null and run.ended_at is null
    and run.deadline_at > {now} and run.deadline_at <= {now} + %(lead_ms)s::bigint
    and run.deadline_at - {now} <= (run.deadline_at - run.created_at) / 10
    and not exists (
        select 1 from {schema}.notification
        where
            notification.tenant = run.tenant and notification.run_id = run.id and notification.seq = 0
            and notification.kind = 'deadline near'
    )
order by run.deadline_at
limit %(limit)s;

-- name: has_deadlines
-- Whether it is worth looking again soon.
select 1 as found from {schema}.run where deadline_at is not null and ended_at is null limit 1;

-- name: standstills
-- A stalled worker gives signs of life all the same. Of one whose culprit is not known the first of its runs stands for
-- all; a run is told of once for each entry at which it stands.
select
    run.tenant, run.id, run.next_seq - 1 as seq, worker.owner, worker.pid, {now} - worker.stalled_at as for_ms,
    worker.stalled_by <> '' as blocks,
    (
        select count(*) from {schema}.run as held where held.status = 'running' and held.owner = worker.owner
    ) as runs
from {schema}.worker
join {schema}.run on run.status = 'running' and run.owner = worker.owner
where
    worker.stalled_at is not null and worker.seen_at > {now} - 60000
    and (
        run.id = worker.stalled_by
        or (
            worker.stalled_by = ''
            and not exists (
                select 1 from {schema}.run as other
                where
                    other.status = 'running' and other.owner = worker.owner
                    and (other.tenant, other.id) < (run.tenant, run.id)
            )
        )
    )
    and not exists (
        select 1 from {schema}.notification
        where
            notification.tenant = run.tenant and notification.run_id = run.id and notification.seq = run.next_seq - 1
            and notification.kind = 'stalled run'
    )
order by worker.owner, run.tenant, run.id
limit %(limit)s::bigint;

-- name: tell
-- Of a run that is there and not being forgotten; the same fact is told once. Differs: the run is kept from being
-- forgotten until this commits.
insert into {schema}.notification (tenant, run_id, seq, kind, id, role, facts, created_at)
select there.tenant, there.id, %(seq)s, %(kind)s, %(id)s, %(role)s, %(facts)s, {moment}
from (
    select tenant, id from {schema}.run
    where tenant = %(tenant)s and id = %(run)s and phase <> 'forgetting'
    for key share
) as there
on conflict do nothing
returning position;

-- name: unrouted
-- What no route has taken, in order.
select notification.*, run.agent
from {schema}.notification
join {schema}.run on run.tenant = notification.tenant and run.id = notification.run_id
where notification.unrouted = %(state)s and notification.position > %(after)s
order by notification.position
limit %(limit)s;

-- name: assign
-- Not due before an earlier one of the same run and route, so that the order of a run stays. Differs: all at once, with
-- what `set_state` does.
with given as materialized (
    select * from json_to_recordset(%(assigned)s::json) as given (position bigint, route text)
),
added as (
    insert into {schema}.delivery (notification, route, tenant, run_id, next_at)
    select
        notification.position, given.route, notification.tenant, notification.run_id,
        greatest(
            {moment},
            (
                select max(earlier.next_at) from {schema}.delivery as earlier
                where
                    earlier.tenant = notification.tenant and earlier.run_id = notification.run_id
                    and earlier.route = given.route and earlier.delivered_at is null and earlier.given_up_at is null
            )
        )
    from given
    join {schema}.notification on notification.position = given.position
    where given.route is not null
    order by notification.position, given.route
    on conflict do nothing
)
update {schema}.notification
set unrouted = case when not taken.routed then 'kept' end
from (select position, bool_or(route is not null) as routed from given group by position) as taken
where notification.position = taken.position and notification.unrouted is not null;

-- name: due_deliveries
-- In the order in which they were written.
select
    notification.*, run.agent, delivery.attempts, coalesce({now} - delivery.failing_since, 0) as failing_ms
from {schema}.delivery
join {schema}.notification on notification.position = delivery.notification
join {schema}.run on run.tenant = notification.tenant and run.id = notification.run_id
where
    delivery.route = %(route)s and delivery.delivered_at is null and delivery.given_up_at is null
    and delivery.next_at <= {now}
order by delivery.notification
limit %(limit)s;

-- name: next_delivery
-- How long until one is due. Differs: of all routes at once.
select min(next_at) - {now} as due_ms
from {schema}.delivery
where route = any(%(routes)s::text[]) and delivered_at is null and given_up_at is null;

-- name: delivered
-- Once is enough.
update {schema}.delivery
set delivered_at = {moment}, attempts = attempts + 1, error = ''
where notification = %(notification)s and route = %(route)s and delivered_at is null and given_up_at is null;

-- name: postpone
-- It, and all behind it of the same run, are due later.
update {schema}.delivery
set
    next_at = greatest(next_at, {moment} + %(after_ms)s::bigint),
    failing_since = coalesce(failing_since, {moment}),
    attempts = attempts + (notification = %(notification)s)::int,
    error = case when notification = %(notification)s then %(error)s else error end
where
    tenant = %(tenant)s and run_id = %(run)s and route = %(route)s and notification >= %(notification)s
    and delivered_at is null and given_up_at is null
    and exists (
        select 1 from {schema}.delivery as head
        where
            head.notification = %(notification)s and head.route = %(route)s and head.delivered_at is null
            and head.given_up_at is null
    );

-- name: give_up
-- Nobody tries it again.
update {schema}.delivery
set given_up_at = {moment}, attempts = attempts + 1, error = %(error)s
where notification = %(notification)s and route = %(route)s and delivered_at is null and given_up_at is null;

-- name: is_moot
-- Whether what it asks for was done or is over: its question was answered, its approval is decided. An answer stays in
-- the inbox, whether it was read or not.
select 1 as found
from {schema}.notification
join {schema}.run on run.tenant = notification.tenant and run.id = notification.run_id
where
    notification.position = %(notification)s
    and (
        (
            notification.kind = 'question'
            and (
                run.ended_at is not null or (notification.facts::json ->> 'until')::bigint <= {now}
                or exists (
                    select 1 from {schema}.inbox
                    where
                        inbox.tenant = run.tenant and inbox.run_id = run.id
                        and inbox.topic = 'mail:' || (notification.facts::json ->> 'question_id')
                )
            )
        )
        or (
            notification.kind in ('approval', 'reminder')
            and exists (
                select 1 from {schema}.approval
                where
                    approval.tenant = run.tenant and approval.id = notification.facts::json ->> 'approval'
                    and (approval.status <> 'asked' or approval.expires_at <= {now})
            )
        )
    );

-- name: drop_delivery
-- As give_up, without an attempt.
update {schema}.delivery
set given_up_at = {moment}, error = %(error)s
where notification = %(notification)s and route = %(route)s and delivered_at is null and given_up_at is null;

-- name: find_notifications
-- Newest first.
select notification.*, run.agent
from {schema}.notification
join {schema}.run on run.tenant = notification.tenant and run.id = notification.run_id
where
    notification.tenant = %(tenant)s
    and (
        not %(undelivered)s or notification.unrouted is not null
        or exists (
            select 1 from {schema}.delivery
            where delivery.notification = notification.position and delivery.delivered_at is null
        )
    )
order by notification.position desc
limit %(limit)s;

-- name: find_deliveries
-- By notification and route. Differs: of several notifications.
select notification, route, attempts, next_at, failing_since, delivered_at, given_up_at, error
from {schema}.delivery
where notification = any(%(notifications)s::bigint[])
order by notification, route;

-- name: routes
-- The newest error of an open one is what most likely holds the others too.
select
    delivery.route,
    count(*) filter (where delivery.given_up_at is null) as open,
    count(delivery.given_up_at) as given_up,
    min(case when delivery.given_up_at is null then delivery.failing_since end) as failing_since,
    coalesce(
        (
            select latest.error from {schema}.delivery as latest
            where
                latest.route = delivery.route and latest.delivered_at is null and latest.given_up_at is null
                and latest.error <> ''
            order by latest.notification desc limit 1
        ),
        ''
    ) as error
from {schema}.delivery
where delivery.delivered_at is null
group by delivery.route
order by delivery.route;

-- name: untold
-- How many no route has taken, and since when.
select count(*), min(created_at) from {schema}.notification where unrouted is not null;
