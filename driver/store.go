package driver

import "context"

// Store is what a backend implements, and this is the law for it.
//
// All methods take a context first (one that is over already is answered by an error, and nothing is done), are safe
// for concurrent use, start no goroutine (but inside a running Listen), do not retry, do not log, give no verdict on
// who may hold, and return the database driver's error unwrapped enough for Classify. They never hold a transaction
// or a connection after they return.
//
// An error means "outcome unknown" unless Classify says FaultNotApplied, FaultPermanent or FaultDenied. Beside an
// error, answers that are true count (a taken ask, a done change), the others are unknown. A request may still take
// effect after its call has returned, and a database driver or proxy below may run one twice: every write is idempotent
// by lease id, session id or revision, and a caller concludes nothing from a false but "look again".
//
// Names are compared byte by byte. Batches hold at most MaxBatch items; answers come in the order of the questions.
// A batch need not be atomic, but each item of it is. An empty batch does nothing. One name stands at most once in a
// batch.
type Store interface {
	// Setup creates or upgrades what the store needs. It may be called at any time, also by many processes at once,
	// and changes nothing that is in use. It refuses, with a sentence, a server or file that cannot keep this law, and
	// a schema newer than this code.
	Setup(ctx context.Context) error

	// Join writes the session row, its first beat stamped by the database's clock, and returns that clock. It is an
	// insert: a row of the same id that is there already, alive and with the same nonce, is left as it is and counts as
	// joined (the request ran twice); any other row of that id is an error that is FaultPermanent. Joining without
	// Setup is ErrNotSetUp.
	Join(ctx context.Context, s Session) (Micros, error)

	// Beat is a compare-and-set: it applies if and only if the row exists, is not dead, and its nonce is prev or next;
	// then the nonce becomes next and the beat is stamped by the database's clock. One statement or
	// transaction. An error that is ErrLost says that the session is gone for good, as when its file was replaced.
	Beat(ctx context.Context, id ID, prev, next Nonce) (BeatReply, error)

	// Reap marks dead those of ids that have been silent, by the clock that stamped the beat, for as long as
	// care.Silence says of their TTL, the condition inside the write, and those of certified without a condition: the
	// caller has proof that their process is gone. Where no silence is proof, an expired session is FateAlive with a TTL
	// left. A store whose clock cannot step may disregard care.Stepped and care.Low. It answers for every id of both
	// lists. FateDead is answered only after this call wrote
	// the mark or read it where writes go. A missing row is FateUnknown, never dead. A beat stamped in the future
	// (the clock stepped back) is set to now, by a compare-and-set on the beat. It never marks a session that beats.
	// Both lists together hold at most MaxBatch ids.
	Reap(ctx context.Context, ids, certified []ID, care Caution) (map[ID]Fate, error)

	// Leave marks the session dead; final, idempotent, no error for a missing row.
	Leave(ctx context.Context, id ID) error

	// Notify raises the session's notice counter by one; no error for a missing row.
	Notify(ctx context.Context, id ID) error

	// Grab takes free names. An ask applies if and only if the record is absent, or free with a revision < Seed; then
	// revision and token become Seed and Holder its only holder, the note stays. It is the only call that creates
	// records. One statement for one ask, at most two for a batch. taken[i] is true only if ask i applied by this call.
	Grab(ctx context.Context, asks []Ask) (taken []bool, err error)

	// Load reads records where writes go, and sees every write acknowledged before it was called. A record whose
	// revision equals the known one is left out, and so is an absent one (for a known revision > 0 an absent record is
	// answered as Record{Name: name}). The order is that of known. A record that cannot be decoded is reported by a
	// *DamagedError joined into err beside the others, and never as free.
	Load(ctx context.Context, known []Known) ([]Record, error)

	// Swap replaces records. A change applies if and only if the record exists and its revision is Old; then holders,
	// tickets and revision become those of the change, the inbox empty, the note that of the change if it has one.
	// After a change is durable its signals are sent, if the store can push; a signal that fails is not a failed Swap.
	// done[i] is true only if change i applied by this call. Swap never creates a record.
	Swap(ctx context.Context, changes []Change) (done []bool, err error)

	// Post appends ops to the inbox without comparing content and raises the revision by one. It applies if and only if
	// the record exists, is not free, its revision is < before, and the inbox stays within MaxInboxBytes.
	Post(ctx context.Context, name string, ops []byte, before Micros) (bool, error)

	// List reads records in byte order of their names. A damaged record is reported as by Load; it counts toward the
	// page, and the others of the page are answered.
	List(ctx context.Context, q Query) ([]Record, error)

	// Sessions reads session rows, in the order of ids, missing ones left out. It serves people, and the client's
	// proof that a process of this machine is gone (Session.Local); no other decision rests on it.
	Sessions(ctx context.Context, ids []ID) ([]Session, error)

	// Prune deletes old free records without a note, each by a delete conditional on its revision, marks silent
	// sessions dead and deletes long dead ones, all as Pruning says. It returns how many records and sessions it
	// deleted.
	Prune(ctx context.Context, p Pruning) (int, error)

	// Classify says what an error of this store means. It never returns FaultNotApplied unless that is certain.
	Classify(err error) Fault
}

// Listener is a store that can push. Without it clients poll.
type Listener interface {
	// Listen calls wake for each signal to session until ctx ends or listening fails, then returns the reason. It calls
	// wake with SignalGap once it is certain to hear what comes (it has seen its own echo), and after every gap.
	// wake is quick and never blocks. Signals may be lost, doubled and late.
	Listen(ctx context.Context, session ID, wake func(Signal)) error
}

// Floor is a store that can show what its database's durability costs.
type Floor interface {
	// Commit makes one raw durable write of a single small row.
	Commit(ctx context.Context) error
}

// SameMachine is a store whose clients may all run on one machine, so that the death of a process can be seen directly
// (Session.Local) instead of by its TTL.
type SameMachine interface {
	// SameMachine reports whether clients should look at processes of their own machine.
	SameMachine() bool
}

// Repeater is a store below which a request that was answered may run once more later (retryable writes, proxies that
// resend). The client then keeps the fence of a refused Grab until the record has passed it.
type Repeater interface {
	// Repeats reports whether that can happen.
	Repeats() bool
}

// Lease is what the guarded transactions of the backends need of a client's lease.
type Lease interface {
	StoredName() string // the name as stored, namespace included
	ID() ID             // the lease id
	Token() Micros      // its fencing token
	Store() Store       // the store the lease was taken through

	// BeginGuard opens a guarded section: until end is called, releasing the lease answers ErrGuarded. It fails with ErrLost
	// if the lease was lost, and with an error that says so if it was released. The returned context ends when the lease does, or ctx.
	BeginGuard(ctx context.Context) (guarded context.Context, end func(), err error)
}
