package holdmem_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
)

// A store is one database: whoever shares it sees the same records and sessions.
func ExampleNew() {
	ctx := context.Background()
	store := holdmem.New()
	ask := func() driver.Ask {
		return driver.Ask{
			Name:   "alarms",
			Seed:   time.Now().UnixMicro(),
			Holder: driver.Entry{Lease: driver.NewID(), Weight: driver.All, Limit: driver.All},
		}
	}
	first, _ := store.Grab(ctx, []driver.Ask{ask()})
	second, _ := store.Grab(ctx, []driver.Ask{ask()})
	fmt.Println(first, second)
	// Output: [true] [false]
}

// A test need not wait for a session to expire: it steps the clock of the database.
func ExampleStore_StepClock() {
	ctx := context.Background()
	store := holdmem.New()
	session := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: 15 * time.Second}
	_, _ = store.Join(ctx, session)
	store.StepClock(15 * time.Second)
	fates, _ := store.Reap(ctx, []driver.ID{session.ID}, nil, driver.Caution{})
	fmt.Println(fates[session.ID].Kind == driver.FateDead)
	// Output: true
}
