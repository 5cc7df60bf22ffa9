package drivertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/driver"
)

func faultRules() []rule {
	return []rule{
		{name: "an error of somebody else has an unknown outcome", check: func(e *env) {
			for _, err := range []error{errors.New("strange"), fmt.Errorf("wrapped: %w", errors.New("strange"))} {
				if got := e.s.Classify(err); got != driver.FaultUnknown {
					e.t.Errorf("Classify(%v) = %v, want %v", err, got, driver.FaultUnknown)
				}
			}
		}},
		{name: "a damaged record is an error that names it", check: func(e *env) {
			if got := e.s.Classify(fmt.Errorf("x: %w", &driver.DamagedError{Name: "n"})); got != driver.FaultPermanent {
				e.t.Errorf("Classify of a DamagedError = %v, want %v", got, driver.FaultPermanent)
			}
		}},
		{name: "a call whose context is over answers an error and does nothing", check: endedContext},
		{
			name: "a damaged record is reported beside the others and never as free",
			check: func(e *env) {
				recs := e.takeAll([]string{"a", "damaged", "z"}, t0)
				e.db.Damage(e.t, "damaged")
				for _, known := range []driver.Micros{0, 1} {
					got, err := e.s.Load(e.ctx, []driver.Known{{Name: "z"}, {Name: "damaged", Revision: known}, {Name: "a"}})
					var damage *driver.DamagedError
					if !errors.As(err, &damage) || damage.Name != "damaged" {
						e.t.Fatalf("error %v; want a DamagedError with the name", err)
					}
					if fault := e.s.Classify(err); fault != driver.FaultPermanent {
						e.t.Errorf("Classify(%v) = %v, want %v", err, fault, driver.FaultPermanent)
					}
					e.same("the other records", []driver.Record{recs[2], recs[0]}, got)
				}
				if e.grab("damaged", t0+1e6, holder()) {
					e.t.Fatal("Grab took a damaged record")
				}
				listed, err := e.s.List(e.ctx, driver.Query{})
				for _, r := range listed {
					if r.Name == "damaged" && (err == nil || r.Free()) {
						e.t.Fatalf("List answers a damaged record as %+v, error %v", r, err)
					}
				}
			},
		},
	}
}

// endedContext makes each call with a context that is over before it.
func endedContext(e *env) {
	rec := e.take("held", t0)
	e.take("free", t0)
	free := driver.Record{Name: "free", Revision: e.release("free", t0)}
	s, stranger := e.join(e.session(hour)), e.session(hour)
	e.silentFor(s.ID, 10*grain)

	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	ids := []driver.ID{s.ID}
	calls := map[string]func() error{
		"Setup":                    func() error { return e.s.Setup(ended) },
		"Join":                     func() error { _, err := e.s.Join(ended, stranger); return err },
		"Beat":                     func() error { _, err := e.s.Beat(ended, s.ID, s.Nonce, driver.NewID()); return err },
		"Reap":                     func() error { _, err := e.s.Reap(ended, nil, ids, driver.Caution{}); return err },
		"Leave":                    func() error { return e.s.Leave(ended, s.ID) },
		"Notify":                   func() error { return e.s.Notify(ended, s.ID) },
		"Grab of a free record":    func() error { _, err := grabOne(ended, e.s, "free", t0+1e6, holder()); return err },
		"Grab of an absent record": func() error { _, err := grabOne(ended, e.s, "absent", t0, holder()); return err },
		"Load":                     func() error { _, err := loadOne(ended, e.s, "held"); return err },
		"Swap": func() error {
			_, err := swapOne(ended, e.s, driver.Change{Name: "held", Old: t0, New: t0 + 1})
			return err
		},
		"Post": func() error {
			_, err := e.s.Post(ended, "held", driver.EncodeOps([]driver.Op{drop()}), t0+10)
			return err
		},
		"List":     func() error { _, err := e.s.List(ended, driver.Query{}); return err },
		"Sessions": func() error { _, err := e.s.Sessions(ended, ids); return err },
		"Prune":    func() error { _, err := e.s.Prune(ended, driver.Pruning{Before: t0 + 1e6, Silent: day}); return err },
	}
	for name, call := range calls {
		err := call()
		if err == nil {
			e.t.Errorf("%s with a context that is over answers no error", name)
			continue
		}
		fault := e.s.Classify(err)
		if fault == driver.FaultPermanent || fault == driver.FaultDenied {
			e.t.Errorf("%s with a context that is over: %v is classified %v", name, err, fault)
		}
		if wrapped := e.s.Classify(fmt.Errorf("lock: %w", err)); wrapped != fault {
			e.t.Errorf("Classify of %s's error is %v, of the same error wrapped %v", name, fault, wrapped)
		}
	}

	e.same("records after calls without a context", []driver.Record{free, rec}, e.list(driver.Query{}))
	if rows := e.rows(stranger.ID); len(rows) != 0 {
		e.t.Error("Join with a context that is over joined")
	}
	if got := e.row(s.ID); got.Dead || got.Silent < 9*grain {
		e.t.Errorf("session %+v after calls without a context; want it alive and silent", got)
	}
	if reply := e.beat(s, s.Nonce, driver.NewID()); !reply.Alive || reply.Notice != 0 {
		e.t.Errorf("beat %+v after calls without a context; want it alive and without a notice", reply)
	}
}
