package driver

import (
	"strings"
	"testing"
	"time"
)

func TestAnIDReadsAsItWasWritten(t *testing.T) {
	t.Parallel()
	seen := map[ID]bool{}
	for range 1000 {
		id := NewID()
		if got, err := ParseID(id.String()); err != nil || got != id || id.IsZero() || seen[id] {
			t.Fatalf("ParseID(%s) = %s, %v", id, got, err)
		}
		seen[id] = true
	}
	if got := (ID{}).String(); got != strings.Repeat("0", 32) || !(ID{}).IsZero() {
		t.Errorf("the zero id is %s", got)
	}
	for _, s := range []string{"", "ab", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("g", 32), strings.Repeat("é", 16)} {
		if id, err := ParseID(s); err == nil || !id.IsZero() {
			t.Errorf("ParseID(%q) = %s, %v; want an error", s, id, err)
		}
	}
}

func TestANameIsOneTo255BytesOfUTF8WithoutNUL(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", " ", "ns/Größe 🔒", strings.Repeat("x", 255), strings.Repeat("é", 127) + "x", "\n"} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 256), strings.Repeat("é", 128), "a\x00", "\x00", "\xff", "a\xc3", "\xed\xa0\x80"} {
		if err := CheckName(name); err == nil {
			t.Errorf("CheckName(%q) = nil, want an error", name)
		}
	}
}

func TestMaxHoldWinsOverMinHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minHold, maxHold time.Duration
		keep, until      Micros
	}{
		{0, 0, 0, 0},
		{2 * time.Microsecond, 0, 102, 0},
		{0, 3 * time.Microsecond, 0, 103},
		{2 * time.Microsecond, 3 * time.Microsecond, 102, 103},
		{4 * time.Microsecond, 3 * time.Microsecond, 103, 103},
	} {
		e := Entry{Rev: 100, MinHold: c.minHold, MaxHold: c.maxHold}
		if e.Keep() != c.keep || e.Until() != c.until {
			t.Errorf("%v and %v: keep %d and until %d, want %d and %d", c.minHold, c.maxHold, e.Keep(), e.Until(), c.keep, c.until)
		}
	}
}

func TestARecordIsFreeOnlyIfNothingStandsInIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rec  Record
		free bool
	}{
		{Record{}, true},
		{Record{Name: "n", Revision: 7, Note: &Note{}}, true},
		{Record{Holders: make([]Entry, 1)}, false},
		{Record{Tickets: make([]Entry, 1)}, false},
		{Record{Inbox: []byte("x")}, false},
	} {
		if got := c.rec.Free(); got != c.free {
			t.Errorf("%+v: Free() = %v", c.rec, got)
		}
	}
}

func TestTheSilenceThatProvesDeathGoesByTheJudgedTTLAndWhatIsKnownOfTheClock(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		care    Caution
		ttl     time.Duration
		now     Micros
		silence time.Duration
		ok      bool
	}{
		"no doubt":                          {Caution{}, time.Second, 7, time.Second, true},
		"known for a TTL":                   {Caution{Known: time.Second}, time.Second, 7, time.Second, true},
		"known for less":                    {Caution{Known: time.Second - 1}, time.Second, 7, 2 * time.Second, true},
		"long enough for a shorter TTL":     {Caution{Known: time.Second}, 500 * time.Millisecond, 7, 500 * time.Millisecond, true},
		"not for a longer one":              {Caution{Known: time.Second}, time.Minute, 7, 2 * time.Minute, true},
		"stepped within the TTL":            {Caution{Known: time.Second - 1, Stepped: true}, time.Second, 7, 0, false},
		"stepped a TTL ago":                 {Caution{Known: time.Second, Stepped: true}, time.Second, 7, time.Second, true},
		"as late as the clock can read":     {Caution{Low: 1000}, time.Second, 101_000, time.Second, true},
		"later than it can":                 {Caution{Low: 1000}, time.Second, 101_001, 0, false},
		"within the margin of a longer TTL": {Caution{Low: 1000}, time.Minute, 6_001_000, time.Minute, true},
	} {
		if silence, ok := test.care.Silence(test.ttl, test.now); silence != test.silence || ok != test.ok {
			t.Errorf("%s: %v, %v, want %v, %v", what, silence, ok, test.silence, test.ok)
		}
	}
}
