-- What the lab does to the schemas that it made.

-- name: names
-- Everything in a schema, and whether it is a table: what a tool has made there is to be seen.
select relname, relkind = 'r' from pg_class where relnamespace = to_regnamespace(%(schema)s)
union all
select typname, false from pg_type where typnamespace = to_regnamespace(%(schema)s);

-- name: limits
-- What cannot be emptied soon is still in use.
set lock_timeout = '5s';

-- name: empty
-- For small tables this takes less time than a truncate, or a new schema.
delete from {schema}.{table};

-- name: drop_table
-- One that a tool has made.
drop table if exists {schema}.{table} cascade;

-- name: everything
-- The bytes of the rows, texts as they are.
copy {schema}.{table} to stdout (format binary);

-- name: drop
-- With what tools have made in it.
drop schema if exists {schema} cascade;
