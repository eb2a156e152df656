// A role that may do no more than create objects in the database, or own a table, gets nothing run with the server's rights: here those of a
// superuser, which is more than a server should have (docs/ops/security.md).
//
// Everything that Mallory makes calls `pwn`, which tries to make her a superuser and says so in Postgres's log, if it is the server's session
// that runs it.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World, eventually } from "./support/world.mjs"

let w, mallory

const PWN = `
  CREATE FUNCTION public.pwn(what text) RETURNS text LANGUAGE plpgsql AS $$
  BEGIN
    IF pg_catalog.current_setting('application_name') OPERATOR(pg_catalog.=) 'thalweg' THEN
      RAISE WARNING 'PWNED by % in %', what, pg_catalog.current_database();
      BEGIN
        EXECUTE pg_catalog.format('ALTER ROLE %I SUPERUSER', (SELECT r.rolname FROM pg_catalog.pg_roles r
          WHERE r.rolname OPERATOR(pg_catalog.~~) 'mallory%' ORDER BY r.oid DESC LIMIT 1));
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END IF;
    RETURN what;
  END $$`

// A twin in public of every function and operator of pg_catalog that an ordinary role may make one of.
const TWINS = `
  DO $do$
  DECLARE
    f record;
    made int := 0;
    name text;
  BEGIN
    FOR f IN SELECT p.oid, p.proname, pg_get_function_identity_arguments(p.oid) AS args, pg_get_function_result(p.oid) AS result
      FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' LOOP
      BEGIN
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$BEGIN PERFORM public.pwn(%L); RETURN NULL; END$f$',
          f.proname, f.args, f.result, f.proname);
        made := made + 1;
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END LOOP;
    -- Better matches than those of the catalog, for what the server asks of catalog rows and of columns.
    FOR f IN SELECT * FROM (VALUES ('to_jsonb', 'pg_catalog.pg_publication', 'jsonb'), ('to_jsonb', 'pg_catalog.pg_publication_rel', 'jsonb'),
      ('to_jsonb', 'pg_catalog.pg_replication_slots', 'jsonb'), ('lower', 'varchar', 'text'), ('upper', 'varchar', 'text'),
      ('length', 'varchar', 'int'), ('btrim', 'varchar', 'text'), ('to_regclass', 'varchar', 'regclass'), ('concat', 'text, text', 'text'),
      ('concat', 'varchar, int', 'text'), ('timezone', 'text, date', 'timestamptz'), ('num_nulls', 'mood', 'int'), ('format', 'text, mood', 'text'))
      AS t(name, args, result) LOOP
      EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$BEGIN PERFORM public.pwn(%L); RETURN NULL; END$f$',
        f.name, f.args, f.result, f.name);
    END LOOP;
    FOR f IN SELECT o.oid, o.oprname, nullif(o.oprleft, 0)::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS result
      FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprright <> 0
      UNION ALL SELECT 0, op, l::regtype, r::regtype, 'bool'::regtype FROM unnest(ARRAY['=', '<>', '<', '>', '~~']) AS op,
        (VALUES ('varchar', 'varchar'), ('varchar', 'text'), ('mood', 'mood'), ('int4', 'text')) AS t(l, r) LOOP
      name := 'op_' || made;
      BEGIN
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$BEGIN PERFORM public.pwn(%L); RETURN NULL; END$f$',
          name, concat_ws(', ', f.l, f.r), f.result, 'operator ' || f.oprname);
        EXECUTE format('CREATE OPERATOR public.%s (%s RIGHTARG = %s, FUNCTION = public.%I)',
          f.oprname, coalesce('LEFTARG = ' || f.l || ',', ''), f.r, name);
        made := made + 1;
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END LOOP;
    IF made < 2000 THEN RAISE EXCEPTION 'only % twins', made; END IF;
  END $do$`

before(async () => {
  w = await World.start({ serve: false })
  const role = w.name("mallory")
  await w.sql(`CREATE ROLE ${role} LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO ${role}; ALTER DATABASE ${w.database} SET search_path = public, pg_catalog`)
  w.stops.push(async () => {
    await w.sql(`DROP OWNED BY ${role} CASCADE`)
    await w.sql(`DROP ROLE ${role}`)
  })
  mallory = await w.connection()
  // As she would begin: names of the catalog are to mean the catalog's while she prepares.
  await mallory.query(`SET search_path = pg_catalog, public; SET SESSION AUTHORIZATION ${role}`)
  await w.db.query("SET search_path = pg_catalog, public")
  await mallory.query(PWN)
  await mallory.query("CREATE TYPE public.mood AS ENUM ('sad', 'ok')")
  await mallory.query(TWINS)
  // Types that look like those of the catalog, with a check; relations that do; casts.
  for (const type of ["text", "int4", "int8", "bool", "numeric", "oid", "json", "varchar", "timestamptz", "date"])
    await mallory.query(`CREATE DOMAIN public.${type} AS pg_catalog.${type} CHECK (public.pwn('type ${type}') IS NOT NULL)`)
  for (const relation of ["pg_class", "pg_attribute", "pg_publication", "pg_publication_rel", "pg_replication_slots", "pg_namespace", "pg_locks", "pg_settings"])
    await mallory.query(`CREATE VIEW public.${relation} AS SELECT ${relation === "pg_attribute" ? "r.attrelid, r.attnum, r.attname" : "r.*"}, public.pwn('view ${relation}') FROM pg_catalog.${relation} r`)
  await mallory.query(`
    CREATE TYPE public.moody AS ENUM ('sad', 'ok');
    CREATE FUNCTION public.say(public.mood) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$BEGIN RETURN public.pwn('cast'); END$$;
    CREATE CAST (public.mood AS pg_catalog.text) WITH FUNCTION public.say(public.mood);
    CREATE FUNCTION public.say(public.mood[]) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$BEGIN RETURN public.pwn('cast of an array'); END$$;
    CREATE CAST (public.mood[] AS pg_catalog.text) WITH FUNCTION public.say(public.mood[]);
    CREATE FUNCTION public.say(public.moody) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$BEGIN RETURN public.pwn('implicit cast'); END$$;
    CREATE CAST (public.moody AS pg_catalog.text) WITH FUNCTION public.say(public.moody) AS IMPLICIT;
    CREATE FUNCTION public.count(public.moody) RETURNS pg_catalog.int4 LANGUAGE plpgsql AS $$BEGIN PERFORM public.pwn('implicit cast'); RETURN 1; END$$;
    CREATE CAST (public.moody AS pg_catalog.int4) WITH FUNCTION public.count(public.moody) AS IMPLICIT;
    CREATE DOMAIN public.checked AS pg_catalog.int4 CHECK (public.pwn('domain') IS NOT NULL);
    CREATE TYPE public.pair AS (a public.checked, b pg_catalog.text);
    CREATE FUNCTION public.say(public.pair) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$BEGIN RETURN public.pwn('cast of a composite'); END$$;
    CREATE CAST (public.pair AS pg_catalog.text) WITH FUNCTION public.say(public.pair) AS IMPLICIT;
    CREATE FUNCTION public.computed(n pg_catalog.int4) RETURNS pg_catalog.int4 IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM public.pwn('expression'); RETURN n; END$$;
    CREATE TABLE public.hers (
      id pg_catalog.int4 PRIMARY KEY, v pg_catalog.varchar(20), m public.mood, ms public.mood[], mm public.moody DEFAULT 'ok', d public.checked, ds public.checked[], p public.pair,
      at pg_catalog.timestamptz, day pg_catalog.date, n pg_catalog.numeric DEFAULT public.computed(3), b pg_catalog.bool,
      g pg_catalog.int4 GENERATED ALWAYS AS (public.computed(4)) STORED);
    CREATE INDEX ON public.hers (public.computed(id));
    CREATE TABLE public.inner_hers (id pg_catalog.int4 PRIMARY KEY, v pg_catalog.varchar(20), m public.mood);
    CREATE FUNCTION public.fires() RETURNS pg_catalog.trigger LANGUAGE plpgsql AS $$BEGIN PERFORM public.pwn('trigger'); RETURN NEW; END$$;
    CREATE TRIGGER fires BEFORE INSERT OR UPDATE ON public.hers FOR EACH ROW EXECUTE FUNCTION public.fires();
    ALTER TABLE public.hers ENABLE ROW LEVEL SECURITY;
    CREATE POLICY hidden ON public.hers USING (public.pwn('policy') IS NOT NULL);
    INSERT INTO public.hers (id, v, m, ms, d, ds, p, at, day, b) VALUES
      (1, 'Abc', 'ok', '{ok,sad}', 1, '{1}', '(1,x)', '2024-01-01', '2024-01-01', true), (2, 'x', 'sad', '{}', 2, '{2}', '(2,y)', '2025-01-01', '2025-01-01', false);
    INSERT INTO public.inner_hers VALUES (1, 'Abc', 'ok'), (2, 'y', 'sad')`)
})
after(() => w?.stop())

const pwned = async () => {
  const log = await w.one("SELECT pg_catalog.pg_read_file(pg_catalog.current_setting('data_directory') || '/../server.log')")
  return [...new Set([...log.matchAll(/PWNED by (.*) in (\S+)/g)].filter((found) => found[2] === w.database).map((found) => found[1]))]
}

const nothingRan = async () => {
  assert.deepEqual(await pwned(), [])
  assert.equal(await w.one("SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname LIKE 'mallory%' AND rolsuper"), "0")
}

describe("nothing that an ordinary role has made runs with the server's rights", () => {
  test("when the server sets itself up, publishes a table and reads it", async () => {
    await w.serve()
    const shape = await w.synced({ table: "hers", columns: "id,v,m,ms,d,ds,p,at,day,n,b" })
    assert.equal(shape.rows.size, 2)
    await nothingRan()
  })

  test("by a where clause over columns of her types, in snapshots, subsets and subqueries", async () => {
    const clauses = [
      "lower(v) = 'abc' AND length(v) > 1 AND v LIKE 'A%' AND v <> 'q'",
      "m = 'ok'", "m IN ('ok', 'sad')", "m::text = 'ok'", "m > 'sad'", "'ok' = ANY (ms)", "ms @> '{sad}'", "ms::text <> ''", "p::text <> ''",
      "d = 1", "d IN (1, 3)", "concat(v, d) <> ''", "coalesce(v, 'x') = 'Abc'", "greatest(v, 'a') <> 'b'", "nullif(v, 'q') = 'Abc'",
      "at > '2023-01-01'", "at::date = '2024-01-01'", "day::timestamptz < at + interval '1 day'", "n + 1 > 0 AND - n < 0", "b IS TRUE AND NOT id = 7",
      "v IS DISTINCT FROM 'x'", "id BETWEEN 0 AND 5", "id IN (SELECT id FROM inner_hers WHERE m = 'ok')",
      "(id, v) NOT IN (SELECT id, v FROM inner_hers WHERE v = 'y')", "v IN (SELECT v FROM inner_hers) OR m = 'sad'",
    ]
    for (const where of clauses) {
      const answer = await w.request({ table: "hers", where, columns: "id,v", offset: "-1" })
      assert.equal(answer.status, 200, `${where}: ${answer.text}`)
    }
    // Implicit casts make Postgres refuse a comparison that has several meanings then: that is between Mallory and her clients.
    for (const where of ["mm = 'ok'", "mm IN ('ok', 'sad')", "mm > 'sad'", "mm::text = 'ok'", "mm IS DISTINCT FROM 'ok'", "coalesce(mm, 'ok') = 'ok'", "greatest(mm, 'ok') = 'ok'"]) {
      const answer = await w.request({ table: "hers", where, columns: "id,v", offset: "-1" })
      assert.ok([200, 400].includes(answer.status), `${where}: ${answer.status} ${answer.text}`)
    }
    // Together: one scan for all of them.
    await Promise.all(Array.from({ length: 20 }, (_, n) => w.request({ table: "hers", where: n % 2 ? `m = 'ok' AND id = ${n}` : `v = 'x${n}'`, columns: "id", offset: "-1" })))
    const shape = await w.synced({ table: "hers", columns: "id,v" })
    for (const subset of [{ where: "lower(v) = 'abc' AND m = 'ok'", order_by: "v DESC, m", limit: "1" }, { where: "m::text = 'ok'" }]) {
      const answer = await w.request({ table: "hers", columns: "id,v", offset: shape.offset, handle: shape.handle, subset })
      assert.equal(answer.status, 200, answer.text)
    }
    await nothingRan()
  })

  test("by constants of her types, which a client may write", async () => {
    for (const where of ["ds = '{7}'", "p = '(8,x)'", "'{9}'::checked[] IS NULL", "'{10}'::public.checked[] IS NULL", "CAST('(11,x)' AS public.pair) IS NULL",
      "id IN (SELECT id FROM public.hers WHERE ds = '{12}')", "public.pwn('by name') IS NULL", "v OPERATOR(public.=) 'x'", "d = 'x'::public.text"]) {
      const answer = await w.request({ table: "hers", where, columns: "id", offset: "-1" })
      assert.equal(answer.status, 400, `${where}: ${answer.text}`)
    }
    await nothingRan()
  })

  test("by changes, and by what is looked at while nobody asks", async () => {
    const shape = await w.synced({ table: "hers", columns: "id,v,m", where: "id IN (SELECT id FROM inner_hers WHERE m = 'ok')" })
    await mallory.query("UPDATE public.inner_hers SET m = 'ok' WHERE id = 2; UPDATE public.hers SET v = 'new'")
    await shape.until((s) => s.rows.size === 2 && s.column("v").every((v) => v === "new"))
    await mallory.query("ALTER TABLE public.hers ADD COLUMN more pg_catalog.int4 DEFAULT public.computed(5)")
    await eventually(async () => (await w.request({ table: "hers", handle: shape.handle, offset: shape.offset, columns: "id,v,m", where: shape.params.where })).status === 409)
    await w.restart()
    await w.synced(shape.params)
    await nothingRan()
  })

  test("by a table that becomes a view while it is read", async () => {
    await mallory.query("CREATE TABLE public.swapped (id pg_catalog.int4 PRIMARY KEY, v pg_catalog.text); INSERT INTO public.swapped VALUES (1, 'x')")
    await w.synced({ table: "swapped" })
    const swap = async (until) => {
      while (Date.now() < until) {
        await mallory.query("BEGIN; ALTER TABLE public.swapped RENAME TO kept; CREATE VIEW public.swapped AS SELECT k.id, public.pwn('swapped') AS v FROM public.kept k; COMMIT")
        await mallory.query("BEGIN; DROP VIEW public.swapped; ALTER TABLE public.kept RENAME TO swapped; COMMIT")
      }
    }
    const until = Date.now() + 4000
    const ask = async (client) => {
      for (let n = 0; Date.now() < until; n++) await w.request({ table: "swapped", where: `id > -${client * 100000 + n}`, offset: "-1" })
    }
    await Promise.all([swap(until), ...Array.from({ length: 8 }, (_, client) => ask(client))])
    await nothingRan()
  })
})

describe("what Postgres evaluates to plan a query, whoever asks", () => {
  test("can change nothing, tell nobody, and has no more rights than the server was given", async () => {
    const own = await World.start({ serve: false, settings: { ELECTRIC_MANUAL_TABLE_PUBLISHING: "true" } })
    try {
      const [reader, owner] = [own.name("reader"), own.name("mallory")]
      await own.sql(`CREATE ROLE ${reader} LOGIN REPLICATION; CREATE ROLE ${owner} LOGIN; GRANT CREATE ON SCHEMA public TO ${owner}`)
      await own.sql(`CREATE TABLE secret (id int, word text); INSERT INTO secret VALUES (1, 'sesame'); GRANT SELECT ON secret TO ${reader}`)
      const her = await own.connection()
      await her.query(`SET SESSION AUTHORIZATION ${owner}`)
      // An immutable function of constants is folded when a query is planned: an index needs no more to run it.
      await her.query(`
        CREATE TABLE loot (word text); GRANT INSERT ON loot TO PUBLIC;
        CREATE FUNCTION steal(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
        BEGIN
          IF current_setting('application_name') = 'thalweg' THEN
            RAISE WARNING 'PLANNED as % in %', current_user, current_database();
            BEGIN INSERT INTO loot SELECT word FROM secret; EXCEPTION WHEN OTHERS THEN NULL; END;
            BEGIN EXECUTE 'SET TRANSACTION READ WRITE'; INSERT INTO loot SELECT word FROM secret; EXCEPTION WHEN OTHERS THEN NULL; END;
            BEGIN EXECUTE 'ALTER ROLE ${owner} SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
            BEGIN PERFORM pg_notify('loot', (SELECT word FROM secret)); EXCEPTION WHEN OTHERS THEN NULL; END;
          END IF;
          RETURN n;
        END $$;
        CREATE TABLE bait (id int PRIMARY KEY); INSERT INTO bait VALUES (1); ALTER TABLE bait REPLICA IDENTITY FULL;
        CREATE INDEX ON bait ((id + steal(1))); GRANT SELECT ON bait TO PUBLIC`)
      await own.sql(`CREATE PUBLICATION thalweg_publication_${own.database} FOR TABLE bait`)
      const heard = []
      her.on("notification", (message) => heard.push(message.payload))
      await her.query("LISTEN loot")
      const url = own.url
      own.url = url.replace("postgres@", `${reader}@`)
      await own.serve()
      const shape = await own.synced({ table: "bait" })
      assert.equal(shape.rows.size, 1)
      assert.equal((await own.request({ table: "bait", where: "id > 0", offset: "-1" })).status, 200)
      const log = await own.one("SELECT pg_read_file(current_setting('data_directory') || '/../server.log')")
      assert.match(log, new RegExp(`PLANNED as ${reader} in ${own.database}`), "Postgres ran it")
      // A notification would have come before the answer to this.
      await her.query("SELECT 1")
      assert.deepEqual(heard, [])
      assert.equal(await own.one("SELECT count(*) FROM loot"), "0")
      assert.equal(await own.one("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'mallory%' AND rolsuper"), "0")
      assert.doesNotMatch(own.log(), /superuser/)
      own.url = url
      await own.kill()
      await own.sql(`DROP OWNED BY ${owner} CASCADE`)
      await own.sql(`DROP OWNED BY ${reader} CASCADE; DROP ROLE ${reader}`)
    } finally {
      await own.stop()
    }
  })

  test("is why a server that connects as a superuser says so at its start", async () => {
    assert.match(w.log(), /the role postgres is a superuser/)
  })
})
