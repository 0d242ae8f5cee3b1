-- Text of calls that are being made. Names are those of the other stores; words in braces are as in queries.sql.

-- name: end_deltas
-- What is superseded: by the record of its call, or because nobody is at the run any more who made it.
-- Differs: all at once.
delete from {schema}.delta
using json_to_recordset(%(over)s::json) as given (tenant text, run text, call text, upto bigint)
where
    delta.tenant = given.tenant and delta.run_id = given.run and delta.after_seq <= given.upto
    and (given.call is null or delta.call = given.call);

-- name: add_delta
-- Only by the owner of the run. It is not locked: a piece that comes too late is superseded all the same.
-- Differs: all at once.
insert into {schema}.delta (tenant, run_id, call, epoch, attempt, name, after_seq, place, text, created_at)
select
    run.tenant, run.id, given.call, given.marked, given.attempt, given.name, given.after_seq, given.place, given.text,
    {moment}
from json_to_recordset(%(deltas)s::json) as given (
    number bigint, tenant text, run text, epoch bigint, token text, call text, marked bigint, attempt bigint, name text,
    after_seq bigint, place bigint, text text
)
join {schema}.run on
    run.tenant = given.tenant and run.id = given.run and run.epoch = given.epoch and run.token = given.token
order by given.number;

-- name: find_deltas
-- Those of a run behind a position.
select call, epoch, attempt, name, after_seq, place, text, position from {schema}.delta
where tenant = %(tenant)s and run_id = %(run)s and position > %(after)s
order by position
limit %(limit)s;

-- name: drop_deltas
-- What a worker that died has left, and whose run nobody has gone on with.
delete from {schema}.delta where created_at <= {now} - %(older_ms)s::bigint returning position;
