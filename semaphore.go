package holdfast

import (
	"context"

	"github.com/holdfastdb/holdfast/driver"
)

// Semaphore is a number of permits under one name. Make it with Client.Semaphore.
type Semaphore struct {
	client *Client
	name   string
	limit  int64
}

// Acquire waits until it holds n permits. n below 1 or above the limit, and a limit of 1<<30 and more, fail with
// ErrArgument. Otherwise it is like Client.Lock.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", s.request(n, opts))
}

// TryAcquire is Acquire that does not wait; see Client.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", tried(s.request(n, opts)))
}

func (s *Semaphore) request(n int, opts []Option) *request {
	r := s.client.request(s.name, int64(n), s.limit, opts)
	switch {
	case s.limit < 1 || s.limit >= driver.All: // All is the limit of exclusive and shared requests
		r.bad = badArgument("a limit of %d permits is not between 1 and %d", s.limit, driver.All-1)
	case n < 1 || int64(n) > s.limit:
		r.bad = badArgument("%d permits of %d can never be granted", n, s.limit)
	}
	return r
}
