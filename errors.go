package holdfast

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// The states a caller can act on. Match them with errors.Is.
var (
	ErrHeld      = errors.New("the name is held")                            // a Try call was refused; the error is a *HeldError
	ErrLost      = driver.ErrLost                                            // the lease is over without a release
	ErrBroken    = fmt.Errorf("%w: an operator broke it", ErrLost)           // is also ErrLost
	ErrReleased  = errors.New("lease released")                              // cause of a lease's context after Release
	ErrClosed    = errors.New("client closed")                               // the client was closed
	ErrReentrant = errors.New("the caller holds this name already")          // the context comes from a lease of the same name
	ErrGuarded   = errors.New("a guarded transaction of this lease is open") // Release or SetNote inside InTx
	ErrNotHeld   = errors.New("the lock was not gained")                     // Do and TryDo: the function never ran; beside the reason
	ErrFull      = errors.New("the record is full")                          // 4,096 holders or 1,024 tickets
	ErrName      = errors.New("bad name")                                    // not 1 to 255 bytes of UTF-8 without NUL
	ErrArgument  = errors.New("bad argument")                                // an option, weight, limit or duration out of range
)

// HeldError says why a Try call was refused: who holds the name, who waits, and what the holders left as a note. It is
// ErrHeld.
type HeldError struct {
	Name    string
	Holders []Holder // may be empty: then only tickets are ahead
	Waiting int      // tickets in the queue
	Note    []byte   // nil if there is none
}

func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "holdfast: %q is held", e.Name)
	for i, h := range e.Holders {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Holders)-i)
			break
		}
		if i == 0 {
			b.WriteString(" by ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(h.String())
	}
	if e.Waiting > 0 {
		fmt.Fprintf(&b, ", %d waiting", e.Waiting)
	}
	return b.String()
}

// Is makes a HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// String describes a holder in a few words.
func (h Holder) String() string {
	who := printable(h.Label)
	if who == "" {
		who = "lease " + h.Lease.String()[:8]
	}
	if h.Host != "" {
		who += fmt.Sprintf(" (%s, pid %d)", printable(h.Host), h.PID)
	}
	if h.Here {
		who += ", this process"
	}
	if !h.Since.IsZero() {
		who += " since " + h.Since.UTC().Format(time.RFC3339)
	}
	return who
}

// printable quotes what another process wrote if it would do more to a terminal than print.
func printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

func badName(name string) error {
	if err := driver.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

func badArgument(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrArgument}, args...)...)
}
