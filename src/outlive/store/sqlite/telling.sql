-- Notifications and their deliveries. Names are those of the other stores. A delivery is open until it was delivered or
-- given up.

-- name: nearing
-- What was told of once has its notification. A tenth of its time is little for a run that has little.
select run.tenant, run.id, run.status, run.reason, run.deadline_at, run.deadline_at - :now as left_ms
from run
where
    run.deadline_at is not null and run.ended_at is null
    and run.deadline_at > :now and run.deadline_at <= :now + :lead_ms
    and run.deadline_at - :now <= (run.deadline_at - run.created_at) / 10
    and not exists (
        select 1 from notification
        where
            notification.tenant = run.tenant and notification.run_id = run.id and notification.seq = 0
            and notification.kind = 'deadline near'
    )
order by run.deadline_at
limit :limit;

-- name: has_deadlines
-- Whether it is worth looking again soon.
select 1 from run where deadline_at is not null and ended_at is null limit 1;

-- name: standstills
-- A stalled worker gives signs of life all the same. Of one whose culprit is not known the first of its runs stands for
-- all; a run is told of once for each entry at which it stands.
select
    run.tenant, run.id, run.next_seq - 1 as seq, worker.owner, worker.pid, :now - worker.stalled_at as for_ms,
    worker.stalled_by <> '' as blocks,
    (
        select count(*) from run as held where held.status = 'running' and held.owner = worker.owner
    ) as runs
from worker
join run on run.status = 'running' and run.owner = worker.owner
where
    worker.stalled_at is not null and worker.seen_at > :now - 60000
    and (
        run.id = worker.stalled_by
        or (
            worker.stalled_by = ''
            and not exists (
                select 1 from run as other
                where
                    other.status = 'running' and other.owner = worker.owner
                    and (other.tenant, other.id) < (run.tenant, run.id)
            )
        )
    )
    and not exists (
        select 1 from notification
        where
            notification.tenant = run.tenant and notification.run_id = run.id and notification.seq = run.next_seq - 1
            and notification.kind = 'stalled run'
    )
order by worker.owner, run.tenant, run.id
limit :limit;

-- name: tell
-- Of a run that is there and not being forgotten; the same fact is told once.
insert into notification (tenant, run_id, seq, kind, id, role, facts, created_at)
select :tenant, :run, :seq, :kind, :id, :role, :facts, :now
where exists (select 1 from run where tenant = :tenant and id = :run and phase <> 'forgetting')
on conflict do nothing;

-- name: unrouted
-- What no route has taken, in order.
select notification.*, run.agent
from notification
join run on run.tenant = notification.tenant and run.id = notification.run_id
where notification.unrouted = :state and notification.position > :after
order by notification.position
limit :limit;

-- name: assign
-- Not due before an earlier one of the same run and route, so that the order of a run stays.
insert into delivery (notification, route, tenant, run_id, next_at)
select
    notification.position, :route, notification.tenant, notification.run_id,
    max(
        :now,
        coalesce(
            (
                select max(earlier.next_at) from delivery as earlier
                where
                    earlier.tenant = notification.tenant and earlier.run_id = notification.run_id
                    and earlier.route = :route and earlier.delivered_at is null and earlier.given_up_at is null
            ),
            0
        )
    )
from notification
where notification.position = :position
on conflict do nothing;

-- name: set_state
-- One that a route has taken stays so.
update notification set unrouted = :state where position = :position and unrouted is not null;

-- name: due_deliveries
-- In the order in which they were written.
select
    notification.*, run.agent, delivery.attempts, coalesce(:now - delivery.failing_since, 0) as failing_ms
from delivery
join notification on notification.position = delivery.notification
join run on run.tenant = notification.tenant and run.id = notification.run_id
where
    delivery.route = :route and delivery.delivered_at is null and delivery.given_up_at is null
    and delivery.next_at <= :now
order by delivery.notification
limit :limit;

-- name: next_delivery
-- How long until one is due.
select min(next_at) - :now from delivery where route = :route and delivered_at is null and given_up_at is null;

-- name: delivered
-- Once is enough.
update delivery
set delivered_at = :now, attempts = attempts + 1, error = ''
where notification = :notification and route = :route and delivered_at is null and given_up_at is null;

-- name: postpone
-- It, and all behind it of the same run, are due later.
update delivery
set
    next_at = max(next_at, :now + :after_ms),
    failing_since = coalesce(failing_since, :now),
    attempts = attempts + (notification = :notification),
    error = case when notification = :notification then :error else error end
where
    tenant = :tenant and run_id = :run and route = :route and notification >= :notification
    and delivered_at is null and given_up_at is null
    and exists (
        select 1 from delivery as head
        where
            head.notification = :notification and head.route = :route and head.delivered_at is null
            and head.given_up_at is null
    );

-- name: give_up
-- Nobody tries it again.
update delivery
set given_up_at = :now, attempts = attempts + 1, error = :error
where notification = :notification and route = :route and delivered_at is null and given_up_at is null;

-- name: is_moot
-- Whether what it asks for was done or is over: its question was answered, its approval is decided. An answer stays in
-- the inbox, whether it was read or not.
select 1 as found
from notification
join run on run.tenant = notification.tenant and run.id = notification.run_id
where
    notification.position = :notification
    and (
        (
            notification.kind = 'question'
            and (
                run.ended_at is not null or json_extract(notification.facts, '$.until') <= :now
                or exists (
                    select 1 from inbox
                    where
                        inbox.tenant = run.tenant and inbox.run_id = run.id
                        and inbox.topic = 'mail:' || json_extract(notification.facts, '$.question_id')
                )
            )
        )
        or (
            notification.kind in ('approval', 'reminder')
            and exists (
                select 1 from approval
                where
                    approval.tenant = run.tenant and approval.id = json_extract(notification.facts, '$.approval')
                    and (approval.status <> 'asked' or approval.expires_at <= :now)
            )
        )
    );

-- name: drop_delivery
-- As give_up, without an attempt.
update delivery
set given_up_at = :now, error = :error
where notification = :notification and route = :route and delivered_at is null and given_up_at is null;

-- name: find_notifications
-- Newest first.
select notification.*, run.agent
from notification
join run on run.tenant = notification.tenant and run.id = notification.run_id
where
    notification.tenant = :tenant
    and (
        not :undelivered or notification.unrouted is not null
        or exists (
            select 1 from delivery
            where delivery.notification = notification.position and delivery.delivered_at is null
        )
    )
order by notification.position desc
limit :limit;

-- name: find_deliveries
-- Of one notification, by route.
select route, attempts, next_at, failing_since, delivered_at, given_up_at, error
from delivery
where notification = :notification
order by route;

-- name: routes
-- The newest error of an open one is what most likely holds the others too.
select
    delivery.route,
    count(*) filter (where delivery.given_up_at is null) as open,
    count(delivery.given_up_at) as given_up,
    min(case when delivery.given_up_at is null then delivery.failing_since end) as failing_since,
    coalesce(
        (
            select latest.error from delivery as latest
            where
                latest.route = delivery.route and latest.delivered_at is null and latest.given_up_at is null
                and latest.error <> ''
            order by latest.notification desc limit 1
        ),
        ''
    ) as error
from delivery
where delivery.delivered_at is null
group by delivery.route
order by delivery.route;

-- name: untold
-- How many no route has taken, and since when.
select count(*), min(created_at) from notification where unrouted is not null;
