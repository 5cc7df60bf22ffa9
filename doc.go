// Package holdfast gives programs distributed locks that live in the database they already run: mutual exclusion,
// shared (reader) locks and counted permits, without another service to operate.
//
//	store, err := holdsqlite.Open("/var/lib/alarms/locks.db", nil)
//	...
//	client := holdfast.New(store, &holdfast.Options{Label: "alarm-node-1"})
//	defer client.Close(context.Background())
//	err = client.Setup(ctx) // creates the tables; harmless if they are there
//	...
//
//	err = client.Do(ctx, "alarms", func(ctx context.Context) error {
//		return process(ctx) // ctx ends, with a cause, before anybody else can hold "alarms"
//	})
//
// # What a lease promises
//
// At most one process at a time believes that it holds an exclusive name. A [Lease] ends for its holder before it can
// begin for another: its context is cancelled with cause [ErrLost] ahead of the moment the database may give the lock
// away, even while a renewal hangs. A process that stops (SIGSTOP, a paused virtual machine) and wakes after its time
// finds its context ended at the first look; what it does without looking, only a guarded transaction (InTx of the
// backend) or the fencing token ([Lease.Token]) can refuse.
//
// Tokens of a name strictly increase, as long as acknowledged writes survive and the database's clock never steps back
// by more than a day. They do not fall after release, clean-up or restart.
//
// Waiting is first come, first served between processes and inside each. Whoever frees room hands the lock to the next
// in the queue in the same write.
//
// # Sessions
//
// A [Client] joins one session at its first use and renews it every third of its TTL with one statement, however many
// leases it holds. If the session is lost, every lease of the client ends; waiting callers queue again by themselves.
//
// All methods of all types are safe for concurrent use.
package holdfast
