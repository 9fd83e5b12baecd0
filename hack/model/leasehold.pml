/*
 * The protocol between store, controller and workers, for exhaustive search by spin.
 *
 * One job, two workers, each with a slot for one report in the manifest, and a controller that
 * reads the manifest, decides in one transaction of the store, and writes a status afterwards. At
 * any moment the controller crashes (also between commit and status) and starts again; a worker
 * stalls and reports late, under any fence that it once had; a report stays in the manifest, or is
 * taken out and comes back; spec.clock is set to any value, back too; the status is deleted; a
 * worker uses the raw operations beside the controller; while the controller is down the database
 * is lost, or replaced by a copy that was taken at any moment.
 *
 * Asserted, of all that ever happened and not of the present state alone:
 *   1  one holder: nobody renews or completes but the worker to whom the newest fence was handed;
 *   2  fences only grow: a fence that is handed out is above all that ever were;
 *   3  one completion: none is accepted after the first, as long as the store or a status knows it;
 *   4  no status shows a holder to whom the fence has not been handed.
 *
 * Abstracted, and so not shown here:
 *   - A status is written with its commit, or not at all where the controller crashed in between.
 *     One that is written later, after somebody else's commit, is as one after which that commit came.
 *   - A worker is never sure of its fence: it may act under any that it was ever handed.
 *   - A transaction is atomic and durable. That is SQLite's part, and traces of real runs show it.
 *   - The jump after a loss is JUMP, not 1,000, and the store is lost only when at most JUMP fences
 *     have been handed out beyond what the status shows, by raw claims and by a controller that
 *     crashed before it wrote. Variant SMALLJUMP shows what happens otherwise.
 *   - After a loss, or after a copy was put back, no raw operation on the job comes before the
 *     controller's first pass over it. One that did would be decided from the store alone, which
 *     knows nothing of what the status shows: variant RAWFIRST finds the second completion.
 *   - A copy made by other means than "store backup" is known by its revision, so it is put back here
 *     only if a status is later than it. A revision is one bit here: later than the copy, or not.
 *   - Loss of store and status together is outside the promise. A completion that no status showed
 *     is lost with the store. To delete the status of a completion that the store does not have is to
 *     run the job again.
 *   - The raw operations' clock is true, and runs from 1 to MAXCLOCK; a lease lasts TTL.
 *
 * What exists beside the present store multiplies the states, so there are two searches: one in which
 * the store is lost, and, with COPIES, one in which a copy is put back; the latter is CALM, without
 * clocks that go back and deleted statuses.
 *
 * Each of these variants breaks something, and must be caught: NOFENCE (the fence is not compared),
 * NOHEED (another store's status is not heeded), NOIDENTITY (an older copy goes on as it is), EARLY
 * (the status is written before the commit), SMALLJUMP (the jump is too small), RAWFIRST. NOMARK (a
 * clock that went back decides) violates nothing here: fences alone keep 1 to 3, and the mark keeps a
 * lease from lasting longer than it should, which is not asserted.
 */

#ifndef MAXCLOCK
#define MAXCLOCK 2
#endif
#ifndef MAXFENCE
#define MAXFENCE 3      /* fences beyond are not explored */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define LOSSES 1
#define TTL 1
#define BEYOND 1 /* fences beyond the status when the store is lost */
#ifdef SMALLJUMP
#define JUMP 0
#else
#define JUMP BEYOND
#endif
#define NOBODY 0

typedef Store {
	byte id;         /* identity */
	byte former;     /* the identity before, which ended at the copy */
	bit  rev;        /* later than the copy */
	bit  known;      /* the job has a row */
	byte owner, until, fence, holder, mark;
	bit  done;
	bit  restore;    /* a completion that only a status knows */
	byte judged[2];  /* the report that has its verdict, as REPORT; 0: none */
}

typedef Status {
	bit  there;
	byte id;
	bit  rev;
	byte owner, fence;
	bit  done;
}

typedef Report {
	bit  there, complete; /* complete or renew */
	byte fence;
}

#define REPORT(i) (1 + 2 * reports[i].fence + reports[i].complete)

hidden Store next;
hidden byte told;
Store  db, copy;
Status shown;
Report reports[2];
bit    copied;          /* there is a copy */
byte   clock = 1, spec = 1, names;
byte   losses, crashes;
bit    down = 1;        /* the controller is not running */
bit    passed;          /* it has looked at the job since the store was lost or replaced */

/* What happened. */
byte handed;            /* the newest fence */
byte to[MAXFENCE + 1];  /* to whom each was handed */
bit  completed;
byte unshown;           /* fences beyond those that the status shows */

inline handout(who, fen) {
	assert(fen > handed);                 /* 2 */
	handed = fen;
	to[fen] = who;
	unshown = (unshown > BEYOND -> unshown : unshown + 1)
}

inline accepted(who, fen) {
	assert(fen == handed && to[fen] == who)   /* 1 */
}

inline finish(who, fen) {
	accepted(who, fen);
	assert(!completed);                 /* 3 */
	completed = 1
}

#ifdef NOFENCE
#define HOLDS(r, w, fe, now) (r.known && !r.done && r.owner == w && r.until > now)
#else
#define HOLDS(r, w, fe, now) (r.known && !r.done && r.fence == fe && r.owner == w && r.until > now)
#endif

#define LOAD(a, b) \
	a.id = b.id; a.former = b.former; a.rev = b.rev; a.known = b.known; \
	a.owner = b.owner; a.until = b.until; a.fence = b.fence; a.holder = b.holder; a.mark = b.mark; \
	a.done = b.done; a.restore = b.restore; a.judged[0] = b.judged[0]; a.judged[1] = b.judged[1]

inline lose() { /* a new, empty database */
	names++;
	db.id = names; db.former = 9; db.rev = 1; db.known = 0;
	db.owner = NOBODY; db.until = 0; db.fence = 0; db.holder = 0; db.mark = 0;
	db.done = 0; db.restore = 0; db.judged[0] = 0; db.judged[1] = 0
}

inline rotate() { /* the database turned out to be an older copy */
	names++;
	db.former = db.id; db.id = names; db.rev = 1;
	if
	:: db.known && !db.done -> db.fence = db.fence + JUMP; db.owner = NOBODY; db.until = 0
	:: else
	fi
}

inline drop() {
	copied = 0;
	copy.id = 0; copy.former = 0; copy.rev = 0; copy.known = 0; copy.owner = 0; copy.until = 0; copy.fence = 0;
	copy.holder = 0; copy.mark = 0; copy.done = 0; copy.restore = 0; copy.judged[0] = 0; copy.judged[1] = 0
}

/* A completion that neither store nor status knows is gone. */
inline forget() {
	if
	:: !db.done && !(shown.there && shown.done) -> completed = 0
	:: else
	fi
}

/* What the controller takes from another store's status. */
inline heed() {
	if
	:: !shown.there -> next.restore = 0
	:: shown.there && shown.id != next.id && (shown.id == next.former -> shown.rev : !next.known) ->
		if
		:: !next.done && shown.fence + JUMP > next.fence ->
			next.fence = shown.fence + JUMP; next.owner = NOBODY; next.until = 0
		:: else
		fi;
		if
		:: !next.done && shown.done -> next.restore = 1
		:: else
		fi
	:: else
	fi
}

inline judge(i) {
	if
	:: reports[i].there && next.judged[i] != REPORT(i) ->
		told = reports[i].fence;
		next.judged[i] = REPORT(i);
		if
		:: HOLDS(next, i + 1, reports[i].fence, spec) && reports[i].complete ->
			next.done = 1;
			finish(i + 1, told)
		:: HOLDS(next, i + 1, reports[i].fence, spec) && !reports[i].complete ->
			next.until = spec + TTL;
			accepted(i + 1, told)
		:: else
		fi
	:: !reports[i].there -> next.judged[i] = 0
	:: else
	fi
}

inline decide() {
	LOAD(next, db);
#ifndef NOHEED
	heed();
#endif
	next.known = 1;
	if
#ifdef NOMARK
	:: true ->
#else
	:: spec >= next.mark ->
#endif
		next.mark = spec;
		judge(0);
		judge(1);
		if
		:: !next.done && !next.restore && next.until <= spec && next.fence < MAXFENCE ->
			next.holder = (next.holder == 1 -> 2 : 1);
			next.owner = next.holder; next.until = spec + TTL; next.fence++;
#ifndef EARLY
			told = next.fence; handout(next.owner, told)
#endif
		:: else
		fi
#ifndef NOMARK
	:: else
#endif
	fi;
	skip
}

#define SAME (next.known == db.known && next.owner == db.owner && next.until == db.until && next.fence == db.fence && \
	next.mark == db.mark && next.done == db.done && next.restore == db.restore && \
	next.judged[0] == db.judged[0] && next.judged[1] == db.judged[1])

inline touched() { db.rev = copied }

#ifdef RAWFIRST
#define RAW (!down)
#else
#define RAW (passed)
#endif

inline commit() {
	passed = 1;
	if
	:: SAME -> next.rev = db.rev
	:: else -> next.rev = (copied || losses > 0); LOAD(db, next)
	fi
}

inline publish() {
	assert(next.owner == NOBODY || to[next.fence] == next.owner);  /* 4 */
	shown.there = 1; shown.id = next.id; shown.rev = next.rev; shown.owner = next.owner;
	shown.fence = next.fence; shown.done = next.done || next.restore;
	unshown = (handed > shown.fence -> unshown : 0)
}

active proctype controller() {
	do
	:: atomic { down ->
		if
		:: true
		:: losses < LOSSES && shown.there && unshown <= BEYOND -> losses++; passed = 0; lose(); forget()
		:: losses < LOSSES && shown.there && unshown <= BEYOND && copied -> losses++; passed = 0; LOAD(db, copy); forget();
#ifndef NOIDENTITY
			rotate()
#endif
		:: losses < LOSSES && shown.there && unshown <= BEYOND && copied && shown.id == copy.id && shown.rev ->
			losses++; passed = 0; LOAD(db, copy); forget()
		fi;
		/* Judged before the first decision. */
		if
#ifndef NOIDENTITY
		:: shown.there && shown.id == db.id && shown.rev && !db.rev -> rotate()
#endif
		:: else
		fi;
		if
		:: crashes == CRASHES || losses == LOSSES -> drop() /* it has no use any more */
		:: else
		fi;
		down = 0
	   }
	/* A pass, and its status; or a crash before that, or before anything. */
#ifdef EARLY
	:: atomic { !down -> decide(); publish();
		if
		:: crashes < CRASHES -> crashes++; down = 1
		:: true ->
			if
			:: next.fence > db.fence && next.owner != NOBODY -> told = next.fence; handout(next.owner, told)
			:: else
			fi;
			commit()
		fi }
#else
	:: atomic { !down -> decide(); commit();
		if
		:: crashes < CRASHES -> crashes++; down = 1
		:: publish()
		fi }
#endif
	:: atomic { !down && crashes < CRASHES -> crashes++; down = 1 }
	od
}

#define me (_pid)

/* A worker may act under any fence that it was ever handed. */
inline recall(f) {
	if
	:: to[1] == me -> f = 1
	:: to[2] == me -> f = 2
#if MAXFENCE > 2
	:: to[3] == me -> f = 3
#endif
#if MAXFENCE > 3
	:: to[4] == me -> f = 4
#endif
#if MAXFENCE > 4
	:: to[5] == me -> f = 5
#endif
	:: else
	fi
}

active [2] proctype worker() {
	byte f;
	do
	:: atomic { !reports[me - 1].there -> recall(f);
		if
		:: f > 0 -> reports[me - 1].there = 1; reports[me - 1].fence = f;
			if
			:: reports[me - 1].complete = 1
			:: true
			fi;
			f = 0
		:: else
		fi }
	:: atomic { reports[me - 1].there -> reports[me - 1].there = 0; reports[me - 1].fence = 0; reports[me - 1].complete = 0 }
	/* The raw operations, on a store that the controller has judged. */
	:: atomic { RAW -> recall(f);
		if
		:: f > 0 && HOLDS(db, me, f, clock) && db.until != clock + TTL -> accepted(me, f); db.until = clock + TTL; touched()
		:: f > 0 && HOLDS(db, me, f, clock) -> finish(me, f); db.done = 1; touched()
		:: f > 0 && db.known && !db.done && db.owner == me && db.fence == f -> db.owner = NOBODY; db.until = 0; touched()
		:: else
		fi;
		f = 0 }
	:: atomic { RAW && db.known && !db.done && !db.restore && db.until <= clock && db.fence < MAXFENCE ->
		db.owner = me; db.holder = me; db.until = clock + TTL; db.fence++; touched(); f = db.fence; handout(me, f); f = 0 }
	od
}

/* Users, and time. */
active proctype world() {
	do
	:: atomic { clock < MAXCLOCK -> clock++ }
	:: atomic { spec < MAXCLOCK -> spec++ }
#ifndef CALM
	:: atomic { spec > 1 -> spec = 1 }
	:: atomic { shown.there && losses == 0 -> shown.there = 0; shown.id = 0; shown.rev = 0; shown.owner = 0; shown.fence = 0; shown.done = 0;
		forget() }
#endif
#ifdef COPIES
	:: atomic { !copied && !down && db.known && losses < LOSSES && crashes < CRASHES -> copied = 1; LOAD(copy, db) }
#endif
	:: atomic { db.restore && !db.done -> db.restore = 0; db.done = 1; touched() } /* leasehold restore */
	od
}
