package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/holdmem"
)

// Examples keep their locks in memory. A program of several processes opens a store they share, for instance
// holdsqlite.Open("/var/lib/alarms/locks.db", nil), and calls Setup once.

func Example() {
	ctx := context.Background()
	store := holdmem.New()
	client := holdfast.New(store, &holdfast.Options{Label: "alarm-node-1"})
	defer client.Close(ctx)
	if err := client.Setup(ctx); err != nil {
		log.Fatal(err)
	}

	err := client.Do(ctx, "alarms", func(ctx context.Context) error {
		fmt.Println("only one of us at a time")
		return ctx.Err() // ends, with a cause, before anybody else can hold "alarms"
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: only one of us at a time
}

func ExampleClient_Do() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	err := client.Do(ctx, "reports", func(ctx context.Context) error {
		return errors.New("the printer is on fire")
	})
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		fmt.Println("never ran:", err)
	case errors.Is(err, holdfast.ErrLost):
		fmt.Println("the lock was lost while it ran:", err)
	case err != nil:
		fmt.Println("ran under the lock and failed:", err)
	}
	// Output: ran under the lock and failed: the printer is on fire
}

func ExampleClient_TryDo() {
	ctx := context.Background()
	store := holdmem.New()
	one, two := holdfast.New(store, nil), holdfast.New(store, nil)
	defer one.Close(ctx)
	defer two.Close(ctx)

	lease, err := one.Lock(ctx, "cleanup")
	if err != nil {
		log.Fatal(err)
	}
	cleanUp := func(context.Context) error { fmt.Println("cleaning up"); return nil }
	ran, err := two.TryDo(ctx, "cleanup", cleanUp)
	fmt.Println(ran, err)

	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	ran, err = two.TryDo(ctx, "cleanup", cleanUp)
	fmt.Println(ran, err)
	// Output:
	// false <nil>
	// cleaning up
	// true <nil>
}

func ExampleClient_Lock() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	wait, stop := context.WithTimeout(ctx, time.Minute) // bounds the wait, not the lease
	defer stop()
	lease, err := client.Lock(wait, "alarms")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	work := lease.Context() // for all that is done under the lock: it ends when the lease does
	fmt.Println(lease.Name(), work.Err())
	// Output: alarms <nil>
}

// The token goes along with every write to a system that cannot take part in the lock's transactions. That system
// remembers the highest token it has seen and refuses lower ones, and so refuses a holder that woke up too late.
func ExampleLease_Token() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	var highest int64 // kept by the other system
	write := func(token int64) string {
		if token < highest {
			return "refused"
		}
		highest = token
		return "written"
	}

	old, err := client.Lock(ctx, "ledger")
	if err != nil {
		log.Fatal(err)
	}
	if err := old.Release(ctx); err != nil {
		log.Fatal(err)
	}
	current, err := client.Lock(ctx, "ledger")
	if err != nil {
		log.Fatal(err)
	}
	defer current.Release(ctx)
	fmt.Println(write(current.Token()))
	fmt.Println(write(old.Token()))
	// Output:
	// written
	// refused
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	store := holdmem.New()
	day := holdfast.New(store, &holdfast.Options{Label: "day-shift"})
	night := holdfast.New(store, &holdfast.Options{Label: "night-shift"})
	defer day.Close(ctx)
	defer night.Close(ctx)

	lease, err := day.TryLock(ctx, "gate", holdfast.Label("opening"))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	_, err = night.TryLock(ctx, "gate")
	var held *holdfast.HeldError
	if errors.As(err, &held) { // errors.Is(err, holdfast.ErrHeld) if who does not matter
		fmt.Printf("%s is held by %s, %d waiting\n", held.Name, held.Holders[0].Label, held.Waiting)
	}
	// Output: gate is held by opening, 0 waiting
}

func ExampleClient_RLock() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	one, err := client.RLock(ctx, "config")
	if err != nil {
		log.Fatal(err)
	}
	defer one.Release(ctx)
	two, err := client.RLock(ctx, "config") // readers share
	if err != nil {
		log.Fatal(err)
	}
	defer two.Release(ctx)

	_, err = client.TryLock(ctx, "config") // a writer does not
	fmt.Println("the writer must wait:", errors.Is(err, holdfast.ErrHeld))
	// Output: the writer must wait: true
}

func ExampleClient_Semaphore() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	smtp := client.Semaphore("smtp", 10) // at most ten connections, whoever opens them
	lease, err := smtp.Acquire(ctx, 8)
	if err != nil {
		log.Fatal(err)
	}
	_, err = smtp.TryAcquire(ctx, 3)
	fmt.Println("three more:", errors.Is(err, holdfast.ErrHeld))

	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	lease, err = smtp.TryAcquire(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println("three, after the release:", lease.Err())
	// Output:
	// three more: true
	// three, after the release: <nil>
}

func ExampleMaxHold() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	// Whatever hangs in there, others get their turn after ten minutes, and this holder's context ends before that.
	lease, err := client.Lock(ctx, "import", holdfast.MaxHold(10*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Err())

	_, err = client.Lock(ctx, "export", holdfast.MaxHold(time.Second)) // below the TTL
	fmt.Println(errors.Is(err, holdfast.ErrArgument))
	// Output:
	// <nil>
	// true
}

func ExampleMinHold() {
	ctx := context.Background()
	store := holdmem.New()
	one, two := holdfast.New(store, nil), holdfast.New(store, nil)
	defer one.Close(ctx)
	defer two.Close(ctx)

	// Every node starts this job when its own clock says so. The job is quick, their clocks differ by seconds: the name
	// stays taken for a minute from the grant, so that no node runs it again.
	send := func(context.Context) error { fmt.Println("sent"); return nil }
	for _, node := range []*holdfast.Client{one, two} {
		if _, err := node.TryDo(ctx, "nightly-mail", send, holdfast.MinHold(time.Minute)); err != nil {
			log.Fatal(err)
		}
	}
	// Output: sent
}

func ExampleLease_SetNote() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	lease, err := client.Lock(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.SetNote(ctx, []byte("row 4711")); err != nil { // only while it holds
		log.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}

	next, err := client.Lock(ctx, "import") // the next holder goes on from there
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)
	note, err := next.Note(ctx)
	fmt.Printf("%s %v\n", note, err)
	// Output: row 4711 <nil>
}

func ExampleClient_Inspect() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), &holdfast.Options{Label: "alarm-node-1"})
	defer client.Close(ctx)

	lease, err := client.Lock(ctx, "alarms")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	rec, err := client.Inspect(ctx, "alarms")
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range rec.Holders {
		fmt.Println(h.Label, h.Here, h.Token == lease.Token())
	}
	fmt.Println(len(rec.Waiters), "waiting")
	// Output:
	// alarm-node-1 true true
	// 0 waiting
}

func ExampleClient_List() {
	ctx := context.Background()
	client := holdfast.New(holdmem.New(), nil)
	defer client.Close(ctx)

	for _, name := range []string{"jobs/b", "jobs/a", "other"} {
		lease, err := client.Lock(ctx, name)
		if err != nil {
			log.Fatal(err)
		}
		defer lease.Release(ctx)
	}
	for rec, err := range client.List(ctx, "jobs/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.Name, len(rec.Holders))
	}
	// Output:
	// jobs/a 1
	// jobs/b 1
}

func ExampleClient_Break() {
	ctx := context.Background()
	store := holdmem.New()
	worker := holdfast.New(store, &holdfast.Options{Label: "worker", TTL: time.Second})
	operator := holdfast.New(store, &holdfast.Options{TTL: time.Second})
	defer worker.Close(ctx)
	defer operator.Close(ctx)

	lease, err := worker.Lock(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	context.AfterFunc(lease.Context(), func() { // the worker gives way when its context ends
		defer close(done)
		err := lease.Release(ctx)
		fmt.Println("the worker:", errors.Is(err, holdfast.ErrBroken))
	})

	gone, err := operator.Break(ctx, "import", nil) // waits until it has
	if err != nil {
		log.Fatal(err)
	}
	<-done
	fmt.Println("gave way:", gone[0].Label)
	// Output:
	// the worker: true
	// gave way: worker
}

func ExampleEvents() {
	ctx := context.Background()
	var events []string // events come one at a time, and none after Close
	client := holdfast.New(holdmem.New(), &holdfast.Options{Events: &holdfast.Events{
		Granted:  func(g holdfast.Grant) { events = append(events, "granted "+g.Name) },
		Released: func(name string, _ int64, _ time.Duration) { events = append(events, "released "+name) },
		Lost:     func(name string, _ int64, err error) { events = append(events, "lost "+name+": "+err.Error()) },
	}})

	err := client.Do(ctx, "alarms", func(context.Context) error { return nil })
	client.Close(ctx)
	fmt.Println(err, events)
	// Output: <nil> [granted alarms released alarms]
}

func ExampleOptions() {
	ctx := context.Background()
	store := holdmem.New()
	// Two applications in one database that never meet: they lock billing/daily and stock/daily.
	billing := holdfast.New(store, &holdfast.Options{Namespace: "billing", TTL: 5 * time.Second})
	stock := holdfast.New(store, &holdfast.Options{Namespace: "stock"})
	defer billing.Close(ctx)
	defer stock.Close(ctx)

	one, err := billing.TryLock(ctx, "daily")
	if err != nil {
		log.Fatal(err)
	}
	defer one.Release(ctx)
	two, err := stock.TryLock(ctx, "daily")
	if err != nil {
		log.Fatal(err)
	}
	defer two.Release(ctx)
	fmt.Println(one.Name(), one.StoredName(), two.StoredName())
	// Output: daily billing/daily stock/daily
}

func ExampleClient_Close() {
	ctx := context.Background()
	store := holdmem.New()
	one, two := holdfast.New(store, nil), holdfast.New(store, nil)
	defer two.Close(ctx)

	lease, err := one.Lock(ctx, "alarms")
	if err != nil {
		log.Fatal(err)
	}
	one.Close(ctx) // releases every lease and ends the session
	fmt.Println(lease.Err())

	ran, err := two.TryDo(ctx, "alarms", func(context.Context) error { return nil })
	fmt.Println(ran, err)
	_, err = one.Lock(ctx, "alarms")
	fmt.Println(errors.Is(err, holdfast.ErrClosed))
	// Output:
	// lease released
	// true <nil>
	// true
}
