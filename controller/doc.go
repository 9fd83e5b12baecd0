// Package controller reconciles manifests with a store: it enqueues the jobs that are declared,
// leases each to one declared worker at a time, judges what workers report, and writes status back.
//
// A pass over a manifest loads it, decides about all of its jobs in one transaction of the store, and
// then writes their statuses where they differ. What the package promises, for a [Store] that keeps
// the contract of package store and a [Source] as [Directory] is one:
//
//   - Nothing is shown, in a file or in the log, before the transaction that decided it is durable.
//   - A report is judged once, whatever happens between its judgement and its status.
//   - A pass may end anywhere, by a crash or a fault: the next one comes to where it would have come.
//   - A manifest at fault holds up no other. A store at fault decides nothing, one manifest asks it
//     again from time to time, and all go on when it answers.
//   - Where an event tells of a change it is acted on at once; what may have been missed is looked for.
//     Without changes there are no passes, except at the readings of the system clock at which a
//     lease is over, also after that clock was set or the machine slept.
//
// What it does not promise: that status is written soon while a file cannot be; that a system clock
// which goes back decides anything before it has caught up; and, on systems other than Linux, that a
// clock that is set is noticed before something else happens.
package controller
