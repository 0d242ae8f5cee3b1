-- What agents of another library have said. Names are those of the other stores but for the lock;
-- words in braces are as in queries.sql.

-- name: find_transcript_head
-- What the next write goes by, in one look.
select
    token, length, summary,
    coalesce((
        select json_agg(line.uuid)::text from {schema}.transcript_line as line
        where
            line.tenant = %(tenant)s and line.project = %(project)s and line.name = %(name)s
            and line.part = %(part)s and line.uuid = any(%(uuids)s::text[])
    ), '[]')
from {schema}.transcript
where tenant = %(tenant)s and project = %(project)s and name = %(name)s and part = %(part)s;

-- name: begin_transcript
-- Its first write, unless somebody was faster.
insert into {schema}.transcript (tenant, project, name, part, token, length, summary, updated_at)
values (
    %(tenant)s, %(project)s, %(name)s, %(part)s, %(token)s, %(length)s::bigint, %(summary)s::text, {moment}
)
on conflict (tenant, project, name, part) do nothing;

-- name: extend_transcript
-- A later one, unless somebody wrote meanwhile. Its time does not go back.
update {schema}.transcript set
    token = %(token)s, length = %(length)s::bigint, summary = %(summary)s::text,
    updated_at = greatest(updated_at, {moment})
where tenant = %(tenant)s and project = %(project)s and name = %(name)s and part = %(part)s and token = %(after)s;

-- name: add_transcript_line
-- Behind those there are.
insert into {schema}.transcript_line (tenant, project, name, part, place, uuid, value)
values (%(tenant)s, %(project)s, %(name)s, %(part)s, %(place)s, %(uuid)s, %(value)s);

-- name: find_transcript_lines
-- Of a part, in order.
select value from {schema}.transcript_line
where tenant = %(tenant)s and project = %(project)s and name = %(name)s and part = %(part)s
order by place;

-- name: find_transcripts
-- The main parts of a project.
select name, updated_at, summary from {schema}.transcript
where tenant = %(tenant)s and project = %(project)s and part = ''
order by updated_at desc, name;

-- name: find_transcript_parts
-- All but the main one.
select part from {schema}.transcript
where tenant = %(tenant)s and project = %(project)s and name = %(name)s and part <> ''
order by part;

-- name: find_old_transcripts
-- Those of which no part was written for long.
select distinct old.project, old.name from {schema}.transcript as old
where
    old.tenant = %(tenant)s and old.updated_at <= {moment} - %(kept_ms)s::bigint
    and not exists (
        select 1 from {schema}.transcript as young
        where
            young.tenant = old.tenant and young.project = old.project and young.name = old.name
            and young.updated_at > {moment} - %(kept_ms)s::bigint
    )
limit %(limit)s::bigint;

-- name: lock_transcript
-- All its parts, and whether somebody wrote after all. In a file nobody does between two statements of a transaction.
select updated_at > {moment} - %(kept_ms)s::bigint from {schema}.transcript
where tenant = %(tenant)s and project = %(project)s and name = %(name)s
order by part
for update;

-- name: drop_transcript
-- One part, or all when it is the main one. Until this commits nobody else writes to them.
delete from {schema}.transcript
where
    tenant = %(tenant)s and project = %(project)s and name = %(name)s
    and (part = %(part)s or %(part)s::text = '')
returning part;

-- name: drop_transcript_lines
-- Those of a part that was taken away, as they are now that nobody else writes to it.
delete from {schema}.transcript_line
where tenant = %(tenant)s and project = %(project)s and name = %(name)s and part = %(part)s;
