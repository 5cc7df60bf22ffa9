package holdfast

import (
	"container/list"

	"github.com/holdfastdb/holdfast/driver"
)

// maxHints is how many revisions of free names a client remembers, so that the seed of its next Grab passes them.
const maxHints = 4096

// hints is a least-recently-used memory of revisions. Guarded by the client's mutex.
type hints struct {
	order *list.List // of hint, the most recent in front
	at    map[string]*list.Element
}

type hint struct {
	name     string
	revision driver.Micros
}

func newHints() *hints { return &hints{order: list.New(), at: make(map[string]*list.Element)} }

func (h *hints) put(name string, revision driver.Micros) {
	if e := h.at[name]; e != nil {
		e.Value = hint{name, revision}
		h.order.MoveToFront(e)
		return
	}
	h.at[name] = h.order.PushFront(hint{name, revision})
	if h.order.Len() > maxHints {
		last := h.order.Back()
		h.order.Remove(last)
		delete(h.at, last.Value.(hint).name)
	}
}

// take returns the revision remembered for name, 0 if there is none, and forgets it.
func (h *hints) take(name string) driver.Micros {
	e := h.at[name]
	if e == nil {
		return 0
	}
	h.order.Remove(e)
	delete(h.at, name)
	return e.Value.(hint).revision
}
