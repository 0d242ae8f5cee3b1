-- Text of calls that are being made. Names are those of the other stores.

-- name: end_deltas
-- What is superseded: by the record of its call, or because nobody is at the run any more who made it.
delete from delta
where tenant = :tenant and run_id = :run and after_seq <= :upto and (:call is null or call = :call);

-- name: add_delta
-- Only by the owner of the run. It is not locked: a piece that comes too late is superseded all the same.
insert into delta (tenant, run_id, call, epoch, attempt, name, after_seq, place, text, created_at)
select run.tenant, run.id, :call, :marked, :attempt, :name, :after_seq, :place, :text, :now
from run
where run.tenant = :tenant and run.id = :run and run.epoch = :epoch and run.token = :token;

-- name: find_deltas
-- Those of a run behind a position.
select call, epoch, attempt, name, after_seq, place, text, position from delta
where tenant = :tenant and run_id = :run and position > :after
order by position
limit :limit;

-- name: drop_deltas
-- What a worker that died has left, and whose run nobody has gone on with.
delete from delta where created_at <= :now - :older_ms;
