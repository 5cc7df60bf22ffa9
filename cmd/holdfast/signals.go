package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// catcher receives signals from the moment it is made: before anything is acquired, so that no signal can end the
// program between a grant and the release.
type catcher struct{ all, pipe chan os.Signal }

// signalError is the cause of a context that a signal ended.
type signalError struct{ syscall.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("signal %d (%s)", int(e.Signal), e.Signal) }

// catch begins to receive the signals that are forwarded, but those that were ignored when the program began, as under
// nohup: they stay ignored, for the child too.
func catch() *catcher {
	c := &catcher{all: make(chan os.Signal, 64), pipe: make(chan os.Signal, 1)}
	// Nobody reads this one: a message to a stderr that was closed must not kill the holder of a lock.
	signal.Notify(c.pipe, syscall.SIGPIPE)
	for _, s := range forwarded() {
		if !signal.Ignored(s) {
			signal.Notify(c.all, s)
		}
	}
	return c
}

func (c *catcher) stop() {
	signal.Stop(c.all)
	signal.Stop(c.pipe)
}

// endOnSignal returns a context that ends, with a *signalError as its cause, at the first signal that would end a
// program. What comes after stop stays in the channel.
func (c *catcher) endOnSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stopped:
				return
			case s := <-c.all:
				if number, ok := s.(syscall.Signal); ok && !slices.Contains(harmless(), s) {
					cancel(&signalError{number})
					return
				}
			}
		}
	})
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		wg.Wait()
		cancel(context.Canceled)
	})
}

// signalled is the ending of a call that failed with err, which is the signal's doing if there was one.
func signalled(ctx context.Context, err error) error {
	var by *signalError
	if err != nil && errors.As(context.Cause(ctx), &by) {
		return end(by)
	}
	return end(err)
}
