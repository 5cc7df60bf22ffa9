package holdmem

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/drivertest"
)

func TestStoreKeepsTheLaw(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Open: func(*testing.T) drivertest.Database {
		s := New()
		return drivertest.Database{
			Store:    func(*testing.T) driver.Store { return s },
			Damage:   func(_ *testing.T, name string) { s.Damage(name) },
			StepBack: func(_ *testing.T, _ driver.ID, by time.Duration) { s.StepClock(-by) },
		}
	}})
}
