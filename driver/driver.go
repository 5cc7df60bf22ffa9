// Package driver is the seam between Holdfast's client and the databases it runs on: the types of a record and of a
// session, the [Store] interface with the law every backend keeps, and the codec of the stored state.
//
// Applications do not call this package. A backend implements [Store]; package drivertest checks that it keeps the law.
// A store compares and sets. Who may hold a name is decided by the client's arbiter alone, so a backend contains no
// rule about holders, tickets, limits or fairness.
package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"
)

// Micros is an instant of the database's clock, in microseconds since the Unix epoch. Revisions, tokens and fences are
// of this type too: they are hybrid-clock values that follow the database's clock and never fall.
type Micros = int64

// Sizes every backend stores without truncation, and the client enforces before it sends anything.
const (
	MaxNameBytes  = 255       // a stored name (namespace included), in bytes
	MaxLabelBytes = 64        // an entry's or a session's label, in bytes
	MaxNoteBytes  = 4 << 10   // a note's data, in bytes
	MaxHolders    = 4096      // holders of one record
	MaxTickets    = 1024      // tickets of one record
	MaxInboxBytes = 256 << 10 // posted operations not yet folded, in bytes; a Post beyond it is refused
	MaxBatch      = 500       // asks, names or changes in one call
	PageSize      = 1000      // records in one List answer at most
)

// All is the weight and the limit of an exclusive request, and the limit of a shared one.
const All = 1 << 30

// ID names a lease or a session: 128 random bits, new for every attempt. The zero ID names nothing.
type ID [16]byte

// Nonce is what successive beats of a session compare and set; 128 random bits.
type Nonce = ID

// NewID returns a fresh random ID (crypto/rand).
func NewID() ID {
	var id ID
	_, _ = rand.Read(id[:]) // crypto/rand.Read never returns an error
	return id
}

// String returns the ID as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the ID names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("driver: %q is no id: want 32 hexadecimal digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("driver: %q is no id: want 32 hexadecimal digits", s)
	}
	return id, nil
}

// CheckName reports, in one sentence, why a stored name is unusable, or nil. A name is 1 to 255 bytes of valid UTF-8
// without NUL; two names are the same if and only if their bytes are.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the name has %d bytes, the most is %d", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("the name %q contains a NUL byte", name)
		}
	}
	return nil
}

// Entry is one holder or one ticket of a record. It is a plain value: two entries are equal if == says so.
type Entry struct {
	Lease   ID            // the attempt it belongs to, unique among all entries ever
	Session ID            // whose sign of life it depends on; zero: session-less, it ends by time alone
	Weight  int64         // what it counts for, 1 to Limit
	Limit   int64         // its requester's own limit, Weight to All
	Rev     Micros        // holder: its token; ticket: the revision of the change that queued it
	MinHold time.Duration // whole microseconds; 0: none. A holder's name stays taken until Rev + MinHold
	MaxHold time.Duration // whole microseconds; 0: none. A holder's entry ends at Rev + MaxHold
	Broken  bool          // an operator asked the holder to give way
	Label   string        // for people; at most MaxLabelBytes of UTF-8
}

// Keep is the instant before which a released or dead holder's name is not given away; 0 if there is none.
// MaxHold wins over MinHold.
func (e Entry) Keep() Micros {
	d := e.MinHold
	if d <= 0 {
		return 0
	}
	if e.MaxHold > 0 && e.MaxHold < d {
		d = e.MaxHold
	}
	return e.Rev + d.Microseconds()
}

// Until is the instant at which a holder's entry ends by itself; 0 if it has no such end.
func (e Entry) Until() Micros {
	if e.MaxHold <= 0 {
		return 0
	}
	return e.Rev + e.MaxHold.Microseconds()
}

// Note is the small value that stays with a name from holder to holder.
type Note struct {
	Data  []byte // at most MaxNoteBytes
	Token Micros // token of the holder that wrote it
}

// Record is all the database keeps about one name. A record is free if it has no holders, no tickets and an empty
// inbox; an absent one counts as free with revision 0.
type Record struct {
	Name     string
	Revision Micros
	Holders  []Entry
	Tickets  []Entry
	Inbox    []byte // posted operations in the order they came, as EncodeOps wrote them
	Note     *Note  // nil: none was ever set
}

// Free reports whether the record as stored has no holders, no tickets and an empty inbox.
func (r Record) Free() bool { return len(r.Holders) == 0 && len(r.Tickets) == 0 && len(r.Inbox) == 0 }

// Session is one process's sign of life. The first group is written by Join and never changes; the second is kept by
// the store and set only in what Sessions returns.
type Session struct {
	ID      ID
	Nonce   Nonce         // the first nonce; Join writes it, answers need not have it
	TTL     time.Duration // whole microseconds
	Label   string        // the client's label, at most MaxLabelBytes
	Host    string
	PID     int
	Program string
	Local   Local // identity on this machine; zero where the system cannot tell

	Silent time.Duration // how long ago the last beat was stamped, by the clock that stamped it
	Dead   bool
}

// FateKind says what is known of a session.
type FateKind uint8

// The fates of a session. The zero value is FateUnknown.
const (
	FateUnknown FateKind = iota // no row: says nothing about the session
	FateAlive                   // not expired; Fate.Left says for how long at least
	FateDead                    // marked dead, proven by this call on the primary; final
)

// Fate is what Reap says of one session.
type Fate struct {
	Kind FateKind
	Left time.Duration // FateAlive: time until the session may be marked dead, at most its TTL (twice that if Caution says so)
	TTL  time.Duration // FateAlive: the session's TTL
}

// Margin is how much earlier than its TTL a session ends for its own process: a tenth of the TTL, at least MinMargin. The
// holder's and the reaper's view of the database's clock may differ by it.
func Margin(ttl time.Duration) time.Duration { return max(ttl/10, MinMargin) }

// MinMargin is the smallest margin of any session.
const MinMargin = 100 * time.Millisecond

// Caution says what the caller of Reap knows of the database's clock. What can be concluded from it depends on the TTL of
// the session judged, not on the caller's: processes with different TTLs share a database. The zero value has no doubt.
type Caution struct {
	Known   time.Duration // for how long the caller has watched the clock without seeing it step; 0: for ever
	Stepped bool          // it stepped before that; else that is all the time the caller knows it
	Low     Micros        // the clock cannot read less now, unless it stepped since the caller last read it; 0: no bound
}

// Silence returns for how long a session with this TTL must have been silent, by a clock that reads now, to be proven
// dead; ok is false if no silence proves it at present. A clock that reads later than it can has stepped. After a step
// that the caller saw, a session must have had the time to beat by the clock as it is now. A caller that knows the
// clock for less than the session's TTL counts it twice.
func (c Caution) Silence(ttl time.Duration, now Micros) (silence time.Duration, ok bool) {
	switch {
	case c.Low > 0 && now > c.Low+Margin(ttl).Microseconds():
		return 0, false
	case c.Known == 0 || c.Known >= ttl:
		return ttl, true
	case c.Stepped:
		return 0, false
	default:
		return 2 * ttl, true
	}
}

// BeatReply answers a beat.
type BeatReply struct {
	Now    Micros // the database's clock
	Alive  bool   // false is final: dead, unknown, or a foreign nonce
	Notice int64  // the session's notice counter
}

// SignalKind says what a signal is about.
type SignalKind uint8

// The kinds of signals.
const (
	SignalGap     SignalKind = iota + 1 // signals may have been lost before this one; also sent once listening is certain
	SignalGranted                       // the ticket Lease holds now, with Token
	SignalLook                          // somebody waits for a name the receiver holds
	SignalBroken                        // a lease of the receiver was marked broken
)

// Signal is a hint to one session. Signals may be lost, doubled and late.
type Signal struct {
	To    ID
	Kind  SignalKind
	Name  string
	Lease ID
	Token Micros
	Until Micros
}

// Ask is one Grab.
type Ask struct {
	Name   string
	Seed   Micros // becomes revision and token
	Holder Entry  // its Rev is stored as Seed, whatever the caller left there
}

// Change is one Swap: the whole new state of a record.
type Change struct {
	Name    string
	Old     Micros // the revision it was made from, > 0
	New     Micros // > Old
	Holders []Entry
	Tickets []Entry
	Note    *Note // nil: untouched
	Urgent  bool  // a release or cancel: must not queue behind ordinary calls
	Signals []Signal
	_       struct{} // keyed literals only
}

// Known names a record and the revision the caller has, 0 for none.
type Known struct {
	Name     string
	Revision Micros
}

// Query selects records for List.
type Query struct {
	Prefix string // of the stored name, byte by byte; empty: all
	After  string // only names greater than this one, byte by byte; empty: from the start
	Busy   bool   // only records that are not free
	Before Micros // only revisions below it; 0: any
	Max    int    // at most this many, at most PageSize; 0: PageSize
}

// Pruning says what Prune may delete and mark.
type Pruning struct {
	Before Micros        // free records without a note and with a revision below it are deleted
	Silent time.Duration // > 0; sessions silent for it (and for their TTL) are marked dead; those dead for it are deleted
	Max    int           // at most this many records, and as many sessions, in one call; 0: MaxBatch of each
}

// Fault says what an error of a store means.
type Fault uint8

// The faults. The zero value is FaultUnknown: the outcome of a write is unknown, and trying again may help.
const (
	FaultUnknown     Fault = iota // transient, outcome unknown
	FaultNotApplied               // transient, and certain that nothing was written
	FaultPermanent                // trying again cannot help: not set up, damaged, full, read-only, too new a schema
	FaultDenied                   // the database refuses this user
	FaultUnavailable              // the database cannot be reached now; outcome unknown
)

func (f Fault) String() string {
	switch f {
	case FaultNotApplied:
		return "not applied"
	case FaultPermanent:
		return "permanent"
	case FaultDenied:
		return "denied"
	case FaultUnavailable:
		return "unavailable"
	default:
		return "unknown outcome"
	}
}
