-- Tables with their columns, ancestors and parts: one JSON object per table.
-- `{publication}` is its name as a literal; `{which}` selects from pg_class c and pg_namespace n; `{by_schema}` tells whether the
-- publication has the schema s.relnamespace, and `{schema_entries}` by which entries it has that of c. What a version may not have is read through to_jsonb, where it is null.
WITH RECURSIVE
  publication AS (
    SELECT p.oid, p.xmin AS version, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AS whole, p.puballtables, (pg_catalog.to_jsonb(p) OPERATOR(pg_catalog.->>) 'pubgencols') OPERATOR(pg_catalog.=) 's' AS generated, p.pubviaroot
    FROM pg_catalog.pg_publication p WHERE p.pubname OPERATOR(pg_catalog.=) {publication}
  ),
  target AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}'::pg_catalog."char"[]) AND {which}
  ),
  down(target, oid) AS (
    SELECT oid, oid FROM target
    UNION
    SELECT d.target, i.inhrelid FROM down d JOIN pg_catalog.pg_inherits i ON i.inhparent OPERATOR(pg_catalog.=) d.oid
  ),
  up(target, oid) AS (
    SELECT target.oid, i.inhparent FROM target JOIN pg_catalog.pg_inherits i ON i.inhrelid OPERATOR(pg_catalog.=) target.oid
    UNION
    SELECT u.target, i.inhparent FROM up u JOIN pg_catalog.pg_inherits i ON i.inhrelid OPERATOR(pg_catalog.=) u.oid
  ),
  -- Each target and each of its parts.
  relation AS (
    SELECT d.target, c.oid, c.relname, pg_catalog.json_build_object(
      'oid', c.oid::pg_catalog.int8,
      'schema', n.nspname,
      'name', c.relname,
      'kind', c.relkind,
      'persistence', c.relpersistence,
      'identity', c.relreplident,
      'system', c.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid OR n.nspname OPERATOR(pg_catalog.~) '^pg_(catalog|toast|temp)',
      'owned', pg_catalog.pg_has_role(c.relowner, 'USAGE'),
      'readable', pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND (pg_catalog.has_table_privilege(c.oid, 'SELECT') OR pg_catalog.has_any_column_privilege(c.oid, 'SELECT')),
      'partition', c.relispartition,
      -- A table that was made as a part is empty then; one that was attached may have had rows. The catalog's rows of system columns
      -- keep the transaction and the command that made the table; attaching it writes those of all other columns anew.
      'made_as_part', c.oid OPERATOR(pg_catalog.<>) d.target AND (
        SELECT made.xmin OPERATOR(pg_catalog.=) i.xmin AND EXISTS (
          SELECT FROM pg_catalog.pg_attribute a
          WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0
            AND a.xmin OPERATOR(pg_catalog.=) made.xmin AND a.cmin OPERATOR(pg_catalog.=) made.cmin)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_attribute made
          ON made.attrelid OPERATOR(pg_catalog.=) i.inhrelid AND made.attname OPERATOR(pg_catalog.=) 'tableoid'
        WHERE i.inhrelid OPERATOR(pg_catalog.=) c.oid ORDER BY i.inhseqno LIMIT 1),
      'member', EXISTS (
        SELECT FROM pg_catalog.pg_publication_rel r JOIN publication p ON p.oid OPERATOR(pg_catalog.=) r.prpubid
        WHERE r.prrelid OPERATOR(pg_catalog.=) c.oid),
      'published', EXISTS (
        SELECT FROM publication p, LATERAL (
          SELECT c.oid, c.relnamespace
          UNION
          SELECT a.oid, a.relnamespace FROM pg_catalog.pg_partition_ancestors(c.oid) t
          JOIN pg_catalog.pg_class a ON a.oid OPERATOR(pg_catalog.=) t.relid::pg_catalog.oid) s
        WHERE p.puballtables OR {by_schema}
          OR EXISTS (
            SELECT FROM pg_catalog.pg_publication_rel r
            WHERE r.prpubid OPERATOR(pg_catalog.=) p.oid AND r.prrelid OPERATOR(pg_catalog.=) s.oid)),
      'cut', EXISTS (
        SELECT FROM publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid OPERATOR(pg_catalog.=) p.oid
        WHERE (r.prrelid OPERATOR(pg_catalog.=) c.oid
            OR EXISTS (
              SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) t WHERE t.relid::pg_catalog.oid OPERATOR(pg_catalog.=) r.prrelid))
          AND ((pg_catalog.to_jsonb(r) OPERATOR(pg_catalog.->>) 'prqual') IS NOT NULL
            OR (pg_catalog.to_jsonb(r) OPERATOR(pg_catalog.->>) 'prattrs') IS NOT NULL)),
      'as_root', c.relispartition AND EXISTS (SELECT FROM publication p WHERE p.pubviaroot),
      'file', c.relfilenode::pg_catalog.int8,
      'columns', (
        SELECT pg_catalog.hashtextextended(
          pg_catalog.string_agg(pg_catalog.format('%s:%s', a.attnum, a.xmin), ',' ORDER BY a.attnum), 0::pg_catalog.int8)
        FROM pg_catalog.pg_attribute a WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0),
      'entries', (
        SELECT pg_catalog.string_agg(e.entry, ',' ORDER BY e.entry) FROM (
          SELECT pg_catalog.format('%s:%s', r.oid, r.xmin) AS entry FROM publication p
          JOIN pg_catalog.pg_publication_rel r ON r.prpubid OPERATOR(pg_catalog.=) p.oid
          WHERE r.prrelid OPERATOR(pg_catalog.=) c.oid
            OR EXISTS (
              SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) t WHERE t.relid::pg_catalog.oid OPERATOR(pg_catalog.=) r.prrelid)
          UNION ALL
          {schema_entries}
        ) e)
    ) AS about
    FROM down d JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) d.oid
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  )
SELECT pg_catalog.json_build_object(
  'relation', r.about,
  'publishes_generated', COALESCE((SELECT generated FROM publication), false),
  'publishes_all', COALESCE((SELECT whole FROM publication), true),
  'publication', COALESCE((SELECT version::pg_catalog.text FROM publication), ''),
  'parts', COALESCE((SELECT pg_catalog.json_agg(part.about ORDER BY part.oid) FROM relation part
    WHERE part.target OPERATOR(pg_catalog.=) r.oid AND part.oid OPERATOR(pg_catalog.<>) r.oid), '[]'::pg_catalog.json),
  'ancestors', COALESCE((
    SELECT pg_catalog.json_agg(u.oid::pg_catalog.int8 ORDER BY u.oid) FROM up u WHERE u.target OPERATOR(pg_catalog.=) r.oid),
    '[]'::pg_catalog.json),
  'columns', COALESCE((
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', a.attname,
      'number', a.attnum,
      'not_null', a.attnotnull,
      'generated', a.attgenerated,
      'key', (
        SELECT place OPERATOR(pg_catalog.-) 1::pg_catalog.int8
        FROM pg_catalog.pg_index i, pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k(attnum, place)
        WHERE i.indrelid OPERATOR(pg_catalog.=) a.attrelid AND i.indisprimary AND k.attnum OPERATOR(pg_catalog.=) a.attnum
          AND place OPERATOR(pg_catalog.<=) i.indnkeyatts),
      'oid', COALESCE(element.typarray, type.oid)::pg_catalog.int8,
      -- Clients of Electric know values, and the elements of an array, by their own type, a domain's name too; a domain's modifier
      -- is not the column's.
      'type', (
        SELECT t.typname FROM pg_catalog.pg_type t
        WHERE t.oid OPERATOR(pg_catalog.=) CASE WHEN item.oid IS NULL THEN a.atttypid ELSE type.typelem END),
      'modifier', CASE WHEN item.oid IS NULL THEN a.atttypmod ELSE COALESCE(NULLIF(base.modifier, -1), item.modifier, -1) END,
      'dimensions', CASE WHEN item.oid IS NULL THEN 0 ELSE GREATEST(base.dimensions, 1) END,
      'element', COALESCE(item.oid, 0::pg_catalog.oid)::pg_catalog.int8,
      'labels', COALESCE((
        SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e
        WHERE e.enumtypid OPERATOR(pg_catalog.=) COALESCE(item.oid, type.oid)), '[]'::pg_catalog.json),
      'made', CASE WHEN a.atttypid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid THEN (
        SELECT pg_catalog.json_build_object(
          'schema', n.nspname,
          'name', t.typname,
          'checked', item.oid IS NOT NULL AND item.oid OPERATOR(pg_catalog.<>) type.typelem,
          'parts', (
            -- Types that values of this one are made of, and of composites and enums among them what their texts depend on.
            WITH RECURSIVE made(oid) AS (
              SELECT a.atttypid
              UNION
              SELECT next.oid FROM made m JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) m.oid
              CROSS JOIN LATERAL (
                SELECT t.typbasetype WHERE t.typtype OPERATOR(pg_catalog.=) 'd'
                UNION ALL
                SELECT t.typelem WHERE t.typelem OPERATOR(pg_catalog.<>) 0::pg_catalog.oid
                UNION ALL
                SELECT f.atttypid FROM pg_catalog.pg_attribute f
                WHERE t.typtype OPERATOR(pg_catalog.=) 'c' AND f.attrelid OPERATOR(pg_catalog.=) t.typrelid
                  AND f.attnum OPERATOR(pg_catalog.>) 0 AND NOT f.attisdropped
                UNION ALL
                SELECT r.rngsubtype FROM pg_catalog.pg_range r
                WHERE t.oid OPERATOR(pg_catalog.=) r.rngtypid OR t.oid OPERATOR(pg_catalog.=) r.rngmultitypid
              ) next(oid)
              WHERE m.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
            )
            SELECT pg_catalog.string_agg(part.text, ' ' ORDER BY part.of, part.place) FROM (
              SELECT f.attrelid AS of, f.attnum::pg_catalog.float4 AS place,
                pg_catalog.format('%s.%s:%s,%s', f.attrelid, f.attnum, f.atttypid, f.atttypmod) AS text
              FROM made m JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) m.oid
              JOIN pg_catalog.pg_attribute f ON f.attrelid OPERATOR(pg_catalog.=) t.typrelid
              WHERE t.typtype OPERATOR(pg_catalog.=) 'c' AND f.attnum OPERATOR(pg_catalog.>) 0 AND NOT f.attisdropped
              UNION ALL
              SELECT e.enumtypid, e.enumsortorder, pg_catalog.format('%s=%L', e.oid, e.enumlabel)
              FROM made m JOIN pg_catalog.pg_enum e ON e.enumtypid OPERATOR(pg_catalog.=) m.oid
              WHERE m.oid OPERATOR(pg_catalog.<>) COALESCE(item.oid, type.oid)
            ) part
          )
        )
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
        WHERE t.oid OPERATOR(pg_catalog.=) COALESCE(item.oid, type.oid)
      ) END
    ) ORDER BY a.attnum)
    FROM pg_catalog.pg_attribute a
    -- The type below all domains, and where it is an array the type below those of its elements.
    CROSS JOIN LATERAL (
      WITH RECURSIVE below(oid, modifier, dimensions, depth) AS (
        SELECT a.atttypid, a.atttypmod, a.attndims::pg_catalog.int4, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, t.typndims, b.depth OPERATOR(pg_catalog.+) 1
        FROM below b JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) b.oid WHERE t.typtype OPERATOR(pg_catalog.=) 'd'
      )
      SELECT * FROM below ORDER BY depth DESC LIMIT 1
    ) base
    JOIN pg_catalog.pg_type type ON type.oid OPERATOR(pg_catalog.=) base.oid
    LEFT JOIN LATERAL (
      WITH RECURSIVE below(oid, modifier, depth) AS (
        SELECT t.oid, -1, 0 FROM pg_catalog.pg_type t
        WHERE t.oid OPERATOR(pg_catalog.=) type.typelem AND t.typarray OPERATOR(pg_catalog.=) type.oid
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, b.depth OPERATOR(pg_catalog.+) 1
        FROM below b JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) b.oid WHERE t.typtype OPERATOR(pg_catalog.=) 'd'
      )
      SELECT * FROM below ORDER BY depth DESC LIMIT 1
    ) item ON true
    LEFT JOIN pg_catalog.pg_type element ON element.oid OPERATOR(pg_catalog.=) item.oid
    WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped), '[]'::pg_catalog.json)
)
FROM relation r
WHERE r.oid OPERATOR(pg_catalog.=) r.target
