package driver

import (
	"errors"
	"fmt"
)

// ErrLost says that a lease is over without having been released: its session expired, its time was up, or it was
// removed. The root package exports it too.
var ErrLost = errors.New("lease lost")

// ErrSnapshot says that a user's transaction began before the lease was granted, so that it may not see what the
// previous holder wrote. Begin the transaction after the grant.
var ErrSnapshot = errors.New("the transaction's snapshot is older than the lease")

// ErrNotSetUp says that the store's tables are not there: Setup was never called on this database.
var ErrNotSetUp = errors.New("the database is not set up: call Setup once")

// DamagedError reports a record whose stored state cannot be read. Nothing is concluded from such a record: it is not
// free, and nobody is granted it.
type DamagedError struct {
	Name string // the record's name
	Err  error  // what is wrong with it
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the record of %q is damaged: %v", e.Name, e.Err)
}

// Unwrap returns what is wrong with the record.
func (e *DamagedError) Unwrap() error { return e.Err }
