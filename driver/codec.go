package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The stored state of a record is one line of compact ASCII JSON, so that a database administrator can read a row at
// three in the morning. Fields that have their usual value are left out: an exclusive entry shows neither weight nor
// limit. Decoding is strict: an unknown, missing or repeated field, null, a duplicate lease or a value out of range
// makes the record damaged, for a client that does not understand a record must neither grant nor rewrite it.

// wireEntry has pointers where a zero that stands there is damage, while an absent field has a meaning.
type wireEntry struct {
	Lease     string  `json:"lease"`
	Session   *string `json:"session,omitempty"` // absent: none
	Weight    *int64  `json:"weight,omitempty"`  // absent: All
	Limit     *int64  `json:"limit,omitempty"`   // absent: All
	Rev       *Micros `json:"rev"`               // absent: damaged; as 0 it would end every MaxHold
	MinHoldUS int64   `json:"min_hold_us,omitempty"`
	MaxHoldUS int64   `json:"max_hold_us,omitempty"`
	Broken    bool    `json:"broken,omitempty"`
	Label     string  `json:"label,omitempty"`
}

// Bounds of what is read: the sum of the largest revision and the longest hold still fits in an int64.
const (
	maxRevision = Micros(1) << 62
	maxHoldUS   = math.MaxInt64 / int64(time.Microsecond)
)

type wireState struct {
	Holders []wireEntry `json:"holders,omitempty"`
	Tickets []wireEntry `json:"tickets,omitempty"`
}

// EncodeState writes holders and tickets as one line of ASCII JSON.
func EncodeState(holders, tickets []Entry) []byte {
	return encode(wireState{Holders: toWire(holders), Tickets: toWire(tickets)})
}

// DecodeState reads what EncodeState wrote. Errors describe the damage; the caller wraps them in a *DamagedError.
func DecodeState(state []byte) (holders, tickets []Entry, err error) {
	var w wireState
	if err := decode(state, &w); err != nil {
		return nil, nil, fmt.Errorf("state: %w", err)
	}
	seen := make(map[ID]bool, len(w.Holders)+len(w.Tickets))
	if holders, err = fromWire(w.Holders, seen); err != nil {
		return nil, nil, fmt.Errorf("holders: %w", err)
	}
	if tickets, err = fromWire(w.Tickets, seen); err != nil {
		return nil, nil, fmt.Errorf("tickets: %w", err)
	}
	return holders, tickets, nil
}

// OpKind says what a posted operation does.
type OpKind uint8

// The posted operations.
const (
	OpEnqueue OpKind = iota + 1 // queue Entry
	OpDrop                      // release or cancel Lease
)

// Op is one posted operation.
type Op struct {
	Kind   OpKind
	Entry  Entry // OpEnqueue
	Lease  ID    // OpDrop
	Cancel bool  // OpDrop: nobody was ever told of a grant, so MinHold does not apply
}

type wireOp struct {
	Enqueue *wireEntry `json:"enqueue,omitempty"`
	Drop    string     `json:"drop,omitempty"`
	Cancel  string     `json:"cancel,omitempty"`
}

// EncodeOps writes operations for Post, one line of ASCII JSON each. Concatenated results decode as one list.
func EncodeOps(ops []Op) []byte {
	var b []byte
	for _, op := range ops {
		var w wireOp
		switch {
		case op.Kind == OpEnqueue:
			e := toWire([]Entry{op.Entry})[0]
			w.Enqueue = &e
		case op.Cancel:
			w.Cancel = op.Lease.String()
		default:
			w.Drop = op.Lease.String()
		}
		b = append(append(b, encode(w)...), '\n')
	}
	return b
}

// DecodeOps reads an inbox.
func DecodeOps(inbox []byte) ([]Op, error) {
	var ops []Op
	for n := 1; len(inbox) > 0; n++ {
		line, rest, whole := bytes.Cut(inbox, []byte{'\n'})
		if !whole {
			return nil, fmt.Errorf("inbox: operation %d is cut off", n)
		}
		op, err := decodeOp(line)
		if err != nil {
			return nil, fmt.Errorf("inbox: operation %d: %w", n, err)
		}
		ops, inbox = append(ops, op), rest
	}
	return ops, nil
}

func decodeOp(line []byte) (Op, error) {
	var w wireOp
	if err := decode(line, &w); err != nil {
		return Op{}, err
	}
	switch {
	case w.Enqueue != nil && w.Drop == "" && w.Cancel == "":
		es, err := fromWire([]wireEntry{*w.Enqueue}, map[ID]bool{})
		if err != nil {
			return Op{}, err
		}
		return Op{Kind: OpEnqueue, Entry: es[0]}, nil
	case w.Enqueue == nil && w.Drop != "" && w.Cancel == "":
		id, err := parseID(w.Drop)
		return Op{Kind: OpDrop, Lease: id}, err
	case w.Enqueue == nil && w.Drop == "" && w.Cancel != "":
		id, err := parseID(w.Cancel)
		return Op{Kind: OpDrop, Lease: id, Cancel: true}, err
	}
	return Op{}, errors.New("want exactly one of enqueue, drop, cancel")
}

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("driver: encoding plain structs cannot fail: " + err.Error())
	}
	return ascii(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}))
}

// ascii escapes what is not ASCII as \uXXXX; inside JSON such runes stand only in strings.
func ascii(b []byte) []byte {
	plain := true
	for _, c := range b {
		plain = plain && c < utf8.RuneSelf
	}
	if plain {
		return b
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case r <= 0xFFFF:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
		}
	}
	return []byte(out.String())
}

func decode(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return exact(b)
}

// exact refuses what encoding/json lets pass although it can make a taken record look free: a key that stands twice
// (the last one wins, entry by entry), null (an empty list), and a key in another case (a second spelling of the same
// key). It relies on b being valid JSON.
func exact(b []byte) error {
	var open [][]string // keys of the objects around b[i]
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open = append(open, nil)
		case '}':
			open = open[:len(open)-1]
		case 'n':
			return errors.New("null")
		case '"':
			start := i + 1
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if after := bytes.TrimLeft(b[i+1:], " \t\r\n"); len(after) == 0 || after[0] != ':' {
				continue
			}
			key, keys := string(b[start:i]), &open[len(open)-1]
			switch {
			case strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "":
				return fmt.Errorf("unknown field %q", key)
			case slices.Contains(*keys, key):
				return fmt.Errorf("field %q stands twice", key)
			}
			*keys = append(*keys, key)
		}
	}
	return nil
}

func toWire(es []Entry) []wireEntry {
	ws := make([]wireEntry, len(es))
	for i := range es {
		e := &es[i]
		ws[i] = wireEntry{
			Lease: e.Lease.String(), Rev: &e.Rev, Broken: e.Broken,
			MinHoldUS: e.MinHold.Microseconds(), MaxHoldUS: e.MaxHold.Microseconds(),
			Label: strings.ToValidUTF8(e.Label, "?"), // never longer, as encoding/json's U+FFFD for each byte is
		}
		if !e.Session.IsZero() {
			s := e.Session.String()
			ws[i].Session = &s
		}
		if e.Weight != All {
			ws[i].Weight = &e.Weight
		}
		if e.Limit != All {
			ws[i].Limit = &e.Limit
		}
	}
	return ws
}

func fromWire(ws []wireEntry, seen map[ID]bool) ([]Entry, error) {
	if len(ws) == 0 {
		return nil, nil
	}
	es := make([]Entry, len(ws))
	for i, w := range ws {
		e, err := w.entry()
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if seen[e.Lease] {
			return nil, fmt.Errorf("entry %d: lease %s stands twice", i, e.Lease)
		}
		seen[e.Lease] = true
		es[i] = e
	}
	return es, nil
}

func (w wireEntry) entry() (Entry, error) {
	e := Entry{Weight: All, Limit: All, Broken: w.Broken, Label: w.Label}
	var err error
	if e.Lease, err = parseID(w.Lease); err != nil {
		return Entry{}, err
	}
	if w.Session != nil {
		if e.Session, err = parseID(*w.Session); err != nil {
			return Entry{}, err
		}
	}
	if w.Weight != nil {
		e.Weight = *w.Weight
	}
	if w.Limit != nil {
		e.Limit = *w.Limit
	}
	switch {
	case w.Rev == nil:
		return Entry{}, errors.New("no revision")
	case *w.Rev < 0 || *w.Rev > maxRevision:
		return Entry{}, fmt.Errorf("revision %d", *w.Rev)
	case e.Weight < 1 || e.Weight > e.Limit || e.Limit > All:
		return Entry{}, fmt.Errorf("weight %d with limit %d", e.Weight, e.Limit)
	case w.MinHoldUS < 0 || w.MinHoldUS > maxHoldUS || w.MaxHoldUS < 0 || w.MaxHoldUS > maxHoldUS:
		return Entry{}, errors.New("a hold time out of range")
	case len(w.Label) > MaxLabelBytes:
		return Entry{}, fmt.Errorf("a label of %d bytes", len(w.Label))
	}
	e.Rev = *w.Rev
	e.MinHold = time.Duration(w.MinHoldUS) * time.Microsecond
	e.MaxHold = time.Duration(w.MaxHoldUS) * time.Microsecond
	return e, nil
}

// parseID reads the id of a stored entry, where the zero id is damage.
func parseID(s string) (ID, error) {
	id, err := ParseID(s)
	if err == nil && id.IsZero() {
		err = errors.New("an id of zeros")
	}
	return id, err
}
