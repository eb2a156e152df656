-- Tables with their columns, ancestors and parts: one JSON object per table. `$1` is the publication.
-- `{which}` selects from pg_class c and pg_namespace n; `{by_schema}` tells whether the publication has the schema c.relnamespace.
-- What a version may lack is read through to_jsonb, where it is null.
WITH RECURSIVE
  publication AS (
    SELECT p.oid, p.puballtables, to_jsonb(p) ->> 'pubgencols' = 's' AS generated, p.pubviaroot
    FROM pg_publication p WHERE p.pubname = $1
  ),
  target AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {which}
  ),
  down(target, oid) AS (
    SELECT oid, oid FROM target
    UNION
    SELECT d.target, i.inhrelid FROM down d JOIN pg_inherits i ON i.inhparent = d.oid
  ),
  up(target, oid) AS (
    SELECT target.oid, i.inhparent FROM target JOIN pg_inherits i ON i.inhrelid = target.oid
    UNION
    SELECT u.target, i.inhparent FROM up u JOIN pg_inherits i ON i.inhrelid = u.oid
  ),
  -- Each target and each of its parts.
  relation AS (
    SELECT d.target, c.oid, c.relname, json_build_object(
      'oid', c.oid::int8,
      'schema', n.nspname,
      'name', c.relname,
      'kind', c.relkind,
      'persistence', c.relpersistence,
      'identity', c.relreplident,
      'system', c.oid < 16384 OR n.nspname ~ '^pg_(catalog|toast|temp)',
      'owned', pg_has_role(c.relowner, 'USAGE'),
      'readable', has_schema_privilege(n.oid, 'USAGE')
        AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT')),
      'partition', c.relispartition,
      -- A table that was made as a part is empty then; one that was attached may have had rows. The catalog's rows of system columns
      -- keep the transaction and the command that made the table; attaching it writes those of all other columns anew.
      'made_as_part', c.oid <> d.target AND (
        SELECT made.xmin = i.xmin AND EXISTS (
          SELECT FROM pg_attribute a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmin = made.xmin AND a.cmin = made.cmin)
        FROM pg_inherits i JOIN pg_attribute made ON made.attrelid = i.inhrelid AND made.attname = 'tableoid'
        WHERE i.inhrelid = c.oid ORDER BY i.inhseqno LIMIT 1),
      'member', EXISTS (SELECT FROM pg_publication_rel r JOIN publication p ON p.oid = r.prpubid WHERE r.prrelid = c.oid),
      'published', EXISTS (
        SELECT FROM publication p, LATERAL (
          SELECT c.oid, c.relnamespace
          UNION
          SELECT a.oid, a.relnamespace FROM pg_partition_ancestors(c.oid) t JOIN pg_class a ON a.oid = t.relid) s
        WHERE p.puballtables OR {by_schema}
          OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = s.oid)),
      'cut', EXISTS (
        SELECT FROM publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
        WHERE r.prrelid IN (SELECT c.oid UNION SELECT t.relid FROM pg_partition_ancestors(c.oid) t)
          AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL)),
      'as_root', c.relispartition AND EXISTS (SELECT FROM publication p WHERE p.pubviaroot)
    ) AS about
    FROM down d JOIN pg_class c ON c.oid = d.oid JOIN pg_namespace n ON n.oid = c.relnamespace
  )
SELECT json_build_object(
  'relation', r.about,
  'publishes_generated', coalesce((SELECT generated FROM publication), false),
  'parts', coalesce((SELECT json_agg(part.about ORDER BY part.oid) FROM relation part
    WHERE part.target = r.oid AND part.oid <> r.oid), '[]'::json),
  'ancestors', coalesce((SELECT json_agg(u.oid::int8 ORDER BY u.oid) FROM up u WHERE u.target = r.oid), '[]'::json),
  'columns', coalesce((
    SELECT json_agg(json_build_object(
      'name', a.attname,
      'not_null', a.attnotnull,
      'generated', a.attgenerated,
      'key', (SELECT place - 1 FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
        WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum AND place <= i.indnkeyatts),
      'oid', coalesce(element.typarray, type.oid)::int8,
      -- Clients of Electric know values, and the elements of an array, by their own type, a domain's name too; a domain's modifier
      -- is not the column's.
      'type', (SELECT t.typname FROM pg_type t WHERE t.oid = CASE WHEN item.oid IS NULL THEN a.atttypid ELSE type.typelem END),
      'modifier', CASE WHEN item.oid IS NULL THEN a.atttypmod ELSE coalesce(nullif(base.modifier, -1), item.modifier, -1) END,
      'dimensions', CASE WHEN item.oid IS NULL THEN 0 ELSE greatest(base.dimensions, 1) END,
      'element', coalesce(item.oid, 0)::int8,
      'labels', coalesce((SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e
        WHERE e.enumtypid = coalesce(item.oid, type.oid)), '[]'::json)
    ) ORDER BY a.attnum)
    FROM pg_attribute a
    -- The type below all domains, and where it is an array the type below those of its elements.
    CROSS JOIN LATERAL (
      WITH RECURSIVE below(oid, modifier, dimensions, depth) AS (
        SELECT a.atttypid, a.atttypmod, a.attndims::int4, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, t.typndims, b.depth + 1 FROM below b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
      )
      SELECT * FROM below ORDER BY depth DESC LIMIT 1
    ) base
    JOIN pg_type type ON type.oid = base.oid
    LEFT JOIN LATERAL (
      WITH RECURSIVE below(oid, modifier, depth) AS (
        SELECT t.oid, -1, 0 FROM pg_type t WHERE t.oid = type.typelem AND t.typarray = type.oid
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, b.depth + 1 FROM below b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
      )
      SELECT * FROM below ORDER BY depth DESC LIMIT 1
    ) item ON true
    LEFT JOIN pg_type element ON element.oid = item.oid
    WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped), '[]'::json)
)
FROM relation r
WHERE r.oid = r.target
