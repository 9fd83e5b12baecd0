-- The one place where the schema stands. Statements are separated by blank lines. Triggers run in
-- whatever program writes to the file, so they use only what SQLite 3.34 has.

-- The contract. Programs in other languages use this table with plain SQL; it never changes.
CREATE TABLE IF NOT EXISTS jobs(
  id TEXT PRIMARY KEY,
  owner TEXT,
  until REAL NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  result TEXT,
  done INTEGER NOT NULL DEFAULT 0
);

-- One row. writer is 1 inside our own transactions, so that triggers can tell them from a foreign
-- program's; readers counts those who follow leasehold_changes, and those who went away without a
-- word.
CREATE TABLE IF NOT EXISTS leasehold_meta(
  one INTEGER PRIMARY KEY CHECK(one = 1),
  identity TEXT NOT NULL,
  revision INTEGER NOT NULL,
  writer INTEGER NOT NULL DEFAULT 0,
  readers INTEGER NOT NULL DEFAULT 0,
  directory TEXT NOT NULL DEFAULT ''
);

-- What is known of a job beside its row, and after its row was deleted.
CREATE TABLE IF NOT EXISTS leasehold_memory(
  id TEXT PRIMARY KEY,
  high INTEGER NOT NULL DEFAULT 0,
  holder TEXT NOT NULL DEFAULT '',
  attempts INTEGER NOT NULL DEFAULT 0,
  memory TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS leasehold_former(
  identity TEXT PRIMARY KEY,
  revision INTEGER NOT NULL
);

-- at is in Unix milliseconds. The latest row is never dropped, so seq never goes back.
CREATE TABLE IF NOT EXISTS leasehold_history(
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  id TEXT NOT NULL,
  verb TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  owner TEXT NOT NULL DEFAULT '',
  fence INTEGER NOT NULL DEFAULT 0,
  until REAL NOT NULL DEFAULT 0,
  clock REAL,
  message TEXT NOT NULL DEFAULT '',
  actor TEXT NOT NULL DEFAULT '',
  count INTEGER NOT NULL DEFAULT 1
);

CREATE INDEX IF NOT EXISTS leasehold_history_id ON leasehold_history(id);

-- Which jobs changed, for readers in other processes. origin is the connection of ours that wrote, if
-- it was one of ours. The latest row is never dropped.
CREATE TABLE IF NOT EXISTS leasehold_changes(
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  origin TEXT
);

-- A trigger cannot see whether the INSERT was OR IGNORE, OR REPLACE or an upsert. Over a done job
-- each of them does nothing. REPLACE by row number would delete another job's row unseen.
CREATE TRIGGER leasehold_before_insert BEFORE INSERT ON jobs
BEGIN
  SELECT RAISE(IGNORE) FROM jobs WHERE id = NEW.id AND done IS NOT 0;
  SELECT CASE
    WHEN typeof(NEW.fence) NOT IN ('integer', 'null') OR NEW.fence < 0
    THEN RAISE(ABORT, 'leasehold: fence must be a whole number, 0 or more')
    WHEN NEW.rowid <> -1 AND EXISTS (SELECT 1 FROM jobs WHERE rowid = NEW.rowid AND id IS NOT NEW.id) -- -1: none was given
    THEN RAISE(ABORT, 'leasehold: the row number belongs to another job')
  END;
END;

-- A row that comes back goes on at the highest fence its job ever had; with an owner that did not
-- get that fence it comes back free. For a done row that UPDATE is aborted below, and with it the
-- INSERT: it was a stale completion.
CREATE TRIGGER leasehold_after_insert AFTER INSERT ON jobs
WHEN NEW.id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'leasehold: the row number -1 is not to be had') WHERE NEW.rowid = -1;
  INSERT INTO leasehold_history(at, id, verb, owner, fence, until, actor)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), NEW.id, 'enqueued', COALESCE(NEW.owner, ''), NEW.fence,
    COALESCE(NEW.until, 0), 'sql'
  FROM leasehold_meta WHERE writer = 0;
  INSERT INTO leasehold_changes(id) SELECT NEW.id FROM leasehold_meta WHERE writer = 0 AND readers > 0;
  UPDATE jobs SET owner = NULL, until = 0, fence = (SELECT high FROM leasehold_memory WHERE id = NEW.id)
  WHERE id = NEW.id AND EXISTS (
    SELECT 1 FROM leasehold_memory m WHERE m.id = NEW.id AND (
      m.high > NEW.fence OR (m.high = NEW.fence AND m.high > 0 AND NEW.owner IS NOT NULL AND NEW.owner IS NOT m.holder
        AND (SELECT writer FROM leasehold_meta) = 0)));
  INSERT INTO leasehold_memory(id, high, holder, attempts)
  SELECT NEW.id, NEW.fence, COALESCE(NEW.owner, ''), NEW.owner IS NOT NULL
  WHERE NEW.fence > COALESCE((SELECT high FROM leasehold_memory WHERE id = NEW.id), 0)
  ON CONFLICT(id) DO UPDATE SET high = excluded.high, attempts = attempts + excluded.attempts,
    holder = CASE WHEN excluded.attempts THEN excluded.holder ELSE holder END;
END;

-- After the update, which an abort takes back: a trigger before it would cost a second search.
CREATE TRIGGER leasehold_guard_update AFTER UPDATE ON jobs
BEGIN
  SELECT CASE
    WHEN NEW.id IS NOT OLD.id OR NEW.rowid IS NOT OLD.rowid
    THEN RAISE(ABORT, 'leasehold: the id of a job cannot change')
    WHEN OLD.done IS NOT 0 AND (NEW.done IS NOT OLD.done OR NEW.result IS NOT OLD.result OR NEW.owner IS NOT OLD.owner
      OR NEW.fence IS NOT OLD.fence OR NEW.until IS NOT OLD.until)
    THEN RAISE(ABORT, 'leasehold: the job is done and cannot change')
    WHEN NEW.fence IS OLD.fence AND NEW.owner IS NOT OLD.owner AND NEW.owner IS NOT NULL
      AND (SELECT writer FROM leasehold_meta) = 0
    THEN RAISE(ABORT, 'leasehold: a new owner needs a new fence')
    WHEN NEW.fence IS OLD.fence THEN NULL
    WHEN typeof(NEW.fence) <> 'integer' OR NEW.fence < 0
    THEN RAISE(ABORT, 'leasehold: fence must be a whole number, 0 or more, and cannot rise above 9223372036854775807')
    WHEN typeof(OLD.fence) = 'integer' AND NEW.fence < OLD.fence
      OR NEW.fence < (SELECT high FROM leasehold_memory WHERE id = NEW.id)
    THEN RAISE(ABORT, 'leasehold: the fence of a job only grows')
  END;
END;

CREATE TRIGGER leasehold_after_fence AFTER UPDATE OF fence ON jobs
WHEN NEW.fence IS NOT OLD.fence
BEGIN
  INSERT INTO leasehold_memory(id, high, holder, attempts)
  SELECT NEW.id, NEW.fence, COALESCE(NEW.owner, ''), NEW.owner IS NOT NULL WHERE true
  ON CONFLICT(id) DO UPDATE SET high = max(high, excluded.high),
    attempts = attempts + (excluded.attempts AND excluded.high > high),
    holder = CASE WHEN excluded.attempts AND excluded.high > high THEN excluded.holder ELSE holder END;
END;

CREATE TRIGGER leasehold_before_delete BEFORE DELETE ON jobs
WHEN OLD.done IS NOT 0
BEGIN
  SELECT RAISE(ABORT, 'leasehold: a done job keeps its result and cannot be deleted');
END;

-- The job stays known, even if it never had a fence.
CREATE TRIGGER leasehold_after_delete AFTER DELETE ON jobs
WHEN OLD.id IS NOT NULL
BEGIN
  INSERT INTO leasehold_memory(id) SELECT OLD.id WHERE true ON CONFLICT(id) DO NOTHING;
END;

-- Heartbeats fold into the row of the first, as our own do.
CREATE TRIGGER leasehold_foreign_update AFTER UPDATE ON jobs
WHEN (SELECT writer FROM leasehold_meta) = 0 AND (NEW.owner IS NOT OLD.owner OR NEW.until IS NOT OLD.until
  OR NEW.fence IS NOT OLD.fence OR NEW.result IS NOT OLD.result OR NEW.done IS NOT OLD.done)
BEGIN
  UPDATE leasehold_history SET count = count + 1
  WHERE seq = (SELECT max(seq) FROM leasehold_history WHERE id = NEW.id)
    AND verb = 'renewed' AND reason = '' AND actor = 'sql' AND owner = COALESCE(NEW.owner, '') AND fence = NEW.fence
    AND NEW.owner IS OLD.owner AND NEW.fence IS OLD.fence AND NEW.done IS OLD.done AND NEW.until IS NOT OLD.until;
  INSERT INTO leasehold_history(at, id, verb, owner, fence, until, actor)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), NEW.id, v.verb,
    COALESCE(CASE WHEN v.verb = 'released' THEN OLD.owner ELSE NEW.owner END, ''), NEW.fence, COALESCE(NEW.until, 0), 'sql'
  FROM (SELECT CASE
      WHEN NEW.done IS NOT OLD.done THEN 'completed'
      WHEN NEW.fence IS NOT OLD.fence AND NEW.owner IS NULL THEN 'jumped'
      WHEN NEW.fence IS NOT OLD.fence THEN 'claimed'
      WHEN NEW.owner IS NULL AND OLD.owner IS NOT NULL THEN 'released'
      WHEN NEW.until IS NOT OLD.until THEN 'renewed'
      ELSE 'changed' END AS verb) v
  WHERE v.verb <> 'renewed' OR NOT EXISTS (
    SELECT 1 FROM leasehold_history WHERE seq = (SELECT max(seq) FROM leasehold_history WHERE id = NEW.id)
      AND verb = 'renewed' AND reason = '' AND actor = 'sql' AND owner = COALESCE(NEW.owner, '') AND fence = NEW.fence);
  INSERT INTO leasehold_changes(id) SELECT NEW.id FROM leasehold_meta WHERE readers > 0;
END;

CREATE TRIGGER leasehold_foreign_delete AFTER DELETE ON jobs
WHEN OLD.id IS NOT NULL AND (SELECT writer FROM leasehold_meta) = 0
BEGIN
  INSERT INTO leasehold_history(at, id, verb, owner, fence, actor)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), OLD.id, 'deleted', COALESCE(OLD.owner, ''), OLD.fence, 'sql');
  INSERT INTO leasehold_changes(id) SELECT OLD.id FROM leasehold_meta WHERE readers > 0;
END;

CREATE TRIGGER leasehold_history_stays
BEFORE UPDATE OF seq, at, id, verb, reason, owner, fence, until, clock, message, actor ON leasehold_history
BEGIN
  SELECT RAISE(ABORT, 'leasehold: the history cannot change');
END;

-- A reader that falls behind this far looks at everything.
CREATE TRIGGER leasehold_changes_bound AFTER INSERT ON leasehold_changes
WHEN NEW.seq % 1000 = 0
BEGIN
  DELETE FROM leasehold_changes WHERE seq <= NEW.seq - 10000;
END;
