package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// recordJSON is what ls and show print for programs. Every key is always there.
type recordJSON struct {
	Name     string       `json:"name"`
	Revision int64        `json:"revision"`
	Holders  []entryJSON  `json:"holders"`
	Waiters  []waiterJSON `json:"waiters"`
	Note     []byte       `json:"note"` // base64; null: there is none
}

type entryJSON struct {
	Lease    string `json:"lease"`
	Session  string `json:"session"` // empty: the entry ends by time alone
	Label    string `json:"label"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Weight   int64  `json:"weight"`
	Limit    int64  `json:"limit"`
	Token    *int64 `json:"token"` // null for a waiter
	Since    string `json:"since"`
	EndsInMS *int64 `json:"ends_in_ms"` // null: no end but its session's
}

type waiterJSON struct {
	entryJSON
	Position int `json:"position"`
}

func encode(rec *holdfast.Record) recordJSON {
	out := recordJSON{Name: rec.Name, Revision: rec.Revision, Holders: []entryJSON{}, Waiters: []waiterJSON{}, Note: rec.Note}
	for _, h := range rec.Holders {
		e := encodeEntry(h.Entry, h.Since)
		e.Token = &h.Token
		if h.EndsIn > 0 {
			ms := (h.EndsIn + time.Millisecond - 1).Milliseconds()
			e.EndsInMS = &ms
		}
		out.Holders = append(out.Holders, e)
	}
	for _, w := range rec.Waiters {
		out.Waiters = append(out.Waiters, waiterJSON{encodeEntry(w.Entry, w.Since), w.Position})
	}
	return out
}

func encodeEntry(e holdfast.Entry, since time.Time) entryJSON {
	out := entryJSON{
		Lease: e.Lease.String(), Label: e.Label, Host: e.Host, PID: e.PID, Weight: e.Weight, Limit: e.Limit,
		Since: since.UTC().Format(time.RFC3339Nano),
	}
	if !e.Session.IsZero() {
		out.Session = e.Session.String()
	}
	return out
}

// writeJSON writes one value and a newline. Names stay readable: nothing here goes into a web page.
func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// mode says what an entry asked for.
func mode(e holdfast.Entry) string {
	switch {
	case e.Limit == driver.All && e.Weight == driver.All:
		return "exclusive"
	case e.Limit == driver.All && e.Weight == 1:
		return "shared"
	}
	return fmt.Sprintf("%d of %d", e.Weight, e.Limit)
}

// who names an entry's owner: its label, else its program, else its lease.
func who(e holdfast.Entry) string {
	switch {
	case e.Label != "":
		return plain(e.Label)
	case e.Program != "":
		return plain(e.Program)
	}
	return e.Lease.String()[:8]
}

func where(e holdfast.Entry) (host, pid string) {
	if e.Host == "" {
		return "-", "-"
	}
	return plain(e.Host), strconv.Itoa(e.PID)
}

func state(h holdfast.Holder) string {
	switch {
	case kept(h): // first: nobody is left to give way
		return "kept"
	case h.Broken:
		return "giving way"
	case h.Dead:
		return "dead"
	}
	return "held"
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func endsIn(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return max(d.Round(time.Second), time.Second).String()
}
