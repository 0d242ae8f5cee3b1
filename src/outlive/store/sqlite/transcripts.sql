-- What agents of another library have said. Names are those of the other stores.

-- name: find_transcript_head
-- What the next write goes by, in one look.
select
    token, length, summary,
    coalesce((
        select json_group_array(line.uuid) from transcript_line as line
        where
            line.tenant = :tenant and line.project = :project and line.name = :name
            and line.part = :part and line.uuid in (select value from json_each(:uuids))
    ), '[]')
from transcript
where tenant = :tenant and project = :project and name = :name and part = :part;

-- name: begin_transcript
-- Its first write, unless somebody was faster.
insert into transcript (tenant, project, name, part, token, length, summary, updated_at)
values (:tenant, :project, :name, :part, :token, :length, :summary, :now)
on conflict (tenant, project, name, part) do nothing;

-- name: extend_transcript
-- A later one, unless somebody wrote meanwhile. Its time does not go back.
update transcript set
    token = :token, length = :length, summary = :summary,
    updated_at = max(updated_at, :now)
where tenant = :tenant and project = :project and name = :name and part = :part and token = :after;

-- name: add_transcript_line
-- Behind those there are.
insert into transcript_line (tenant, project, name, part, place, uuid, value)
values (:tenant, :project, :name, :part, :place, :uuid, :value);

-- name: find_transcript_lines
-- Of a part, in order.
select value from transcript_line
where tenant = :tenant and project = :project and name = :name and part = :part
order by place;

-- name: find_transcripts
-- The main parts of a project.
select name, updated_at, summary from transcript
where tenant = :tenant and project = :project and part = ''
order by updated_at desc, name;

-- name: find_transcript_parts
-- All but the main one.
select part from transcript
where tenant = :tenant and project = :project and name = :name and part <> ''
order by part;

-- name: find_old_transcripts
-- Those of which no part was written for long.
select distinct old.project, old.name from transcript as old
where
    old.tenant = :tenant and old.updated_at <= :now - :kept_ms
    and not exists (
        select 1 from transcript as young
        where
            young.tenant = old.tenant and young.project = old.project and young.name = old.name
            and young.updated_at > :now - :kept_ms
    )
limit :limit;

-- name: drop_transcript
-- One part, or all when it is the main one. Until this commits nobody else writes to them.
delete from transcript
where
    tenant = :tenant and project = :project and name = :name
    and (part = :part or :part = '')
returning part;

-- name: drop_transcript_lines
-- Those of a part that was taken away, as they are now that nobody else writes to it.
delete from transcript_line
where tenant = :tenant and project = :project and name = :name and part = :part;
