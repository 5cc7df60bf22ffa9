package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

func TestADurationIsSecondsOrHasAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "1.5": 1500 * time.Millisecond, "90s": 90 * time.Second, "2h30m": 150 * time.Minute, ".25": 250 * time.Millisecond,
		"1e-12": 1, // rounded up: not "do not wait"
	} {
		var d duration
		if err := d.Set(text); err != nil || d.d != want || !d.set {
			t.Errorf("%q: %v, %v; want %v", text, d.d, err, want)
		}
	}
}

func TestADurationIsWrittenWithoutIdleZeros(t *testing.T) {
	t.Parallel()
	for text, d := range map[string]time.Duration{
		"1h": time.Hour, "1h30m": 90 * time.Minute, "1h0m1s": time.Hour + time.Second, "10m": 10 * time.Minute,
		"10s": 10 * time.Second, "750ms": 750 * time.Millisecond, "0s": 0,
	} {
		if got := short(d); got != text {
			t.Errorf("%v: %q, want %q", d, got, text)
		}
	}
}

func FuzzFlagsAreInRangeOrRefused(f *testing.F) {
	for _, text := range []string{"", "1.5", "90s", "-1", "NaN", "1e400", "0x1p-2", "9223372036854775807ns", "1/2", "3/2", "/", "255", "-0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d duration
		if d.Set(text) == nil && (d.d < 0 || d.d > holdfast.MaxMaxHold) {
			t.Errorf("%q is a duration of %v", text, d.d)
		}
		var p permits
		if p.Set(text) == nil && (p.n < 1 || p.n > p.limit) {
			t.Errorf("%q is %d permits of %d", text, p.n, p.limit)
		}
		var s exitStatus
		if s.Set(text) == nil && (s < 0 || s > 255) {
			t.Errorf("%q is an exit status of %d", text, s)
		}
		if got := plain(text); !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\t\x00\x7f") {
			t.Errorf("plain(%q) is %q", text, got)
		}
		if got := defaultLabel(text); len(got) > driver.MaxLabelBytes || !utf8.ValidString(got) {
			t.Errorf("the label of %q is %q", text, got)
		}
	})
}
