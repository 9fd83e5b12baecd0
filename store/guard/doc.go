// Package guard is the other half of a fencing token: the check at the place where something is
// written. A store that hands out fences cannot stop a worker that woke up too late from writing
// elsewhere, into a table, a file, a service; whoever is written to can, by keeping the highest fence
// that it has seen for each resource and refusing a lower one.
//
// The check belongs into the transaction that writes, as its first statement:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback()
//	if err := (guard.Guard{Dialect: guard.PostgreSQL}).Check(ctx, tx, "ledger/42", fence); err != nil {
//		return err // a *guard.StaleError says what is current
//	}
//	_, err = tx.ExecContext(ctx, `UPDATE ledger SET paid = true WHERE id = 42`)
//	…
//	return tx.Commit()
//
// Until that transaction ends, no other one can check the same resource: what was let in under a lower
// fence is committed before a higher one is let in, and is refused afterwards.
//
// In other languages it is one statement and a look at the number of rows that it changed, 0 being
// the refusal. In SQLite and PostgreSQL alike:
//
//	CREATE TABLE IF NOT EXISTS leasehold_guard(
//	  resource TEXT PRIMARY KEY,
//	  fence BIGINT NOT NULL CHECK(fence > 0)
//	);
//
//	BEGIN;            -- in SQLite: BEGIN IMMEDIATE
//	INSERT INTO leasehold_guard(resource, fence) VALUES('ledger/42', 2)
//	  ON CONFLICT(resource) DO UPDATE SET fence = excluded.fence
//	  WHERE leasehold_guard.fence <= excluded.fence;
//	-- no row changed: ROLLBACK, the fence is stale
//	UPDATE ledger SET paid = true WHERE id = 42;
//	COMMIT;
//
// Who may repeat: the same fence passes again and again, because its holder writes more than once, and
// sends again what it does not know to have arrived. A fence is handed out once and run by one agent,
// so an equal fence is the same holder. What must not happen twice under one fence is for the caller
// to see to: by a key of its own, or by [Guard.CheckFirst], which refuses an equal fence too.
//
// A resource is written under the fences of one job. Fences of different jobs count apart, and their
// order says nothing: name the job in the resource, or guard by a job of the resource's own.
//
// The package does not protect what is written without the check, and it does not know whether the
// lease still runs: a stale fence passes until a higher one has been seen. That is enough, since the
// next holder's first write closes the door, but a resource that the next holder never writes to
// stays open.
package guard
