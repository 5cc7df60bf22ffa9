package holdfast

import (
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast/driver"
)

// Limits of the times a caller can ask for.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = time.Second
	MaxTTL     = time.Hour
	MaxMaxHold = 10 * 365 * 24 * time.Hour // longest MaxHold and MinHold
)

// Options configure a Client. The zero value, and a nil pointer, are good defaults.
type Options struct {
	// TTL is how long the leases of a process that dies or cannot reach the database stay taken: a second to an hour,
	// default 15 seconds. The session is renewed every third of it.
	TTL time.Duration

	// Label names this client to people, for instance in HeldError and `holdfast show`; at most 64 bytes of UTF-8.
	Label string

	// Namespace, if not empty, is put with a slash before every name: two namespaces never meet.
	Namespace string

	// Logger receives what an operator may want to know. Default: silent.
	Logger *slog.Logger

	// Events are called as things happen. Default: none.
	Events *Events

	// IgnoreProcesses turns off the same-machine shortcut, by which the death of a process on this machine frees its
	// leases at once. It applies to stores that have the shortcut (SQLite); the others never look at processes.
	IgnoreProcesses bool
}

// Option configures one call.
type Option func(*request)

// MaxHold ends the lease d after its grant, whatever its holder does; at least the client's TTL. The holder learns of it
// ahead of time through its context, with cause ErrLost.
func MaxHold(d time.Duration) Option { return func(r *request) { r.maxHold, r.maxHoldSet = d, true } }

// MinHold keeps the name taken until d after the grant, even if the lease is released earlier or its process dies: for
// jobs shorter than the skew of the clocks that start them. MaxHold wins over it. A wait that is given up has none.
func MinHold(d time.Duration) Option { return func(r *request) { r.minHold, r.minHoldSet = d, true } }

// Label names this one call to people, instead of the client's label; at most 64 bytes of UTF-8.
func Label(text string) Option { return func(r *request) { r.label = text } }

// request is one call's wish.
type request struct {
	stored     string // name with namespace
	name       string
	weight     int64
	limit      int64
	minHold    time.Duration
	maxHold    time.Duration
	minHoldSet bool
	maxHoldSet bool
	label      string
	try        bool  // now or never
	inherit    bool  // the lease's context ends with the caller's (Do)
	bad        error // what is wrong with the permits asked for
}

func (r *request) entry(lease, session driver.ID) driver.Entry {
	return driver.Entry{
		Lease: lease, Session: session, Weight: r.weight, Limit: r.limit,
		MinHold: r.minHold, MaxHold: r.maxHold, Label: r.label,
	}
}

func checkLabel(label string) error {
	if len(label) > driver.MaxLabelBytes || !utf8.ValidString(label) {
		return badArgument("a label is at most %d bytes of UTF-8", driver.MaxLabelBytes)
	}
	return nil
}

func (o *Options) check() error {
	if o.TTL != 0 && (o.TTL < MinTTL || o.TTL > MaxTTL) {
		return badArgument("a TTL of %v is not between %v and %v", o.TTL, MinTTL, MaxTTL)
	}
	if err := checkLabel(o.Label); err != nil {
		return err
	}
	if o.Namespace != "" {
		return badName(o.Namespace + "/x")
	}
	return nil
}

func (r *request) check(ttl time.Duration) error {
	if r.bad != nil {
		return r.bad
	}
	if err := badName(r.stored); err != nil {
		return err
	}
	if err := checkLabel(r.label); err != nil {
		return err
	}
	if r.maxHoldSet && (r.maxHold < ttl || r.maxHold > MaxMaxHold) {
		return badArgument("a MaxHold of %v is not between the TTL, %v, and %v", r.maxHold, ttl, MaxMaxHold)
	}
	if r.minHoldSet && (r.minHold < 0 || r.minHold > MaxMaxHold) {
		return badArgument("a MinHold of %v is not between 0 and %v", r.minHold, MaxMaxHold)
	}
	r.minHold, r.maxHold = ceilMicros(r.minHold), ceilMicros(r.maxHold)
	return nil
}

// ceilMicros rounds up to whole microseconds, the unit in which hold times are stored.
func ceilMicros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
