package driver

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func id(n byte) ID { return ID{0: 0xab, 15: n} }

func TestTheStoredStateOfARecordIsPinned(t *testing.T) {
	t.Parallel()
	exclusive := Entry{Lease: id(1), Session: id(2), Weight: All, Limit: All, Rev: 1_700_000_000_000_000}
	with := func(change func(e *Entry)) Entry {
		e := exclusive
		change(&e)
		return e
	}
	const head = `{"lease":"ab000000000000000000000000000001","session":"ab000000000000000000000000000002",`
	for _, c := range []struct {
		name             string
		holders, tickets []Entry
		want             string
	}{
		{"free", nil, nil, `{}`},
		{"an exclusive holder", []Entry{exclusive}, nil, `{"holders":[` + head + `"rev":1700000000000000}]}`},
		{
			"a shared ticket behind it", []Entry{exclusive},
			[]Entry{with(func(e *Entry) { e.Lease, e.Weight, e.Rev = id(3), 1, e.Rev+1 })},
			`{"holders":[` + head + `"rev":1700000000000000}],"tickets":[{"lease":"ab000000000000000000000000000003",` +
				`"session":"ab000000000000000000000000000002","weight":1,"rev":1700000000000001}]}`,
		},
		{
			"permits", []Entry{with(func(e *Entry) { e.Weight, e.Limit = 2, 5 })}, nil,
			`{"holders":[` + head + `"weight":2,"limit":5,"rev":1700000000000000}]}`,
		},
		{
			"both holds, session-less", []Entry{with(func(e *Entry) { e.Session, e.MinHold, e.MaxHold = ID{}, time.Second, time.Minute })}, nil,
			`{"holders":[{"lease":"ab000000000000000000000000000001","rev":1700000000000000,"min_hold_us":1000000,"max_hold_us":60000000}]}`,
		},
		{"broken", []Entry{with(func(e *Entry) { e.Broken = true })}, nil, `{"holders":[` + head + `"rev":1700000000000000,"broken":true}]}`},
		{
			"a label of all kinds of characters", []Entry{with(func(e *Entry) { e.Label = "a<b>&\"\\\nÄ\u2028🔒\x7f" })}, nil,
			`{"holders":[` + head + `"rev":1700000000000000,"label":"a<b>&\"\\\n\u00c4\u2028\ud83d\udd12` + "\x7f" + `"}]}`,
		},
	} {
		got := EncodeState(c.holders, c.tickets)
		if string(got) != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		holders, tickets, err := DecodeState([]byte(c.want))
		if err != nil || !slices.Equal(holders, c.holders) || !slices.Equal(tickets, c.tickets) {
			t.Errorf("%s: decodes as %+v %+v, %v", c.name, holders, tickets, err)
		}
	}
	ops := []Op{{Kind: OpEnqueue, Entry: exclusive}, {Kind: OpDrop, Lease: id(4)}, {Kind: OpDrop, Lease: id(5), Cancel: true}}
	const want = `{"enqueue":` + head + `"rev":1700000000000000}}` + "\n" +
		`{"drop":"ab000000000000000000000000000004"}` + "\n" + `{"cancel":"ab000000000000000000000000000005"}` + "\n"
	if got := EncodeOps(ops); string(got) != want {
		t.Errorf("operations: got\n%s\nwant\n%s", got, want)
	}
}

// entries draws entries as clients make them: distinct leases, values in range.
func entries() *rapid.Generator[[]Entry] {
	us := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, maxHoldUS))
	one := rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{
			Lease:   id(byte(rapid.IntRange(1, 255).Draw(t, "lease"))),
			Limit:   rapid.OneOf(rapid.Just(int64(All)), rapid.Int64Range(1, All)).Draw(t, "limit"),
			Rev:     rapid.Int64Range(0, maxRevision).Draw(t, "rev"),
			MinHold: time.Duration(us.Draw(t, "min hold")) * time.Microsecond,
			MaxHold: time.Duration(us.Draw(t, "max hold")) * time.Microsecond,
			Broken:  rapid.Bool().Draw(t, "broken"),
			Label:   rapid.StringN(0, -1, MaxLabelBytes).Draw(t, "label"),
		}
		e.Weight = rapid.OneOf(rapid.Just(e.Limit), rapid.Int64Range(1, e.Limit)).Draw(t, "weight")
		if rapid.Bool().Draw(t, "has a session") {
			e.Session = id(byte(rapid.IntRange(0, 255).Draw(t, "session")))
		}
		return e
	})
	return rapid.SliceOfNDistinct(one, 0, 8, func(e Entry) ID { return e.Lease })
}

func line(t *rapid.T, b []byte) {
	for _, c := range b {
		if c >= utf8.RuneSelf || c < ' ' {
			t.Fatalf("byte %#x in %s", c, b)
		}
	}
}

func TestAStateReadsAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		es := entries().Draw(t, "entries")
		n := rapid.IntRange(0, len(es)).Draw(t, "holders")
		b := EncodeState(es[:n], es[n:])
		line(t, b)
		holders, tickets, err := DecodeState(b)
		if err != nil || !slices.Equal(holders, es[:n]) || !slices.Equal(tickets, es[n:]) {
			t.Fatalf("%s: %+v %+v, %v", b, holders, tickets, err)
		}
	})
}

func TestPostsOneAfterAnotherReadAsOneList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var ops, part []Op
		var inbox []byte
		for _, e := range entries().Draw(t, "entries") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				part = []Op{{Kind: OpEnqueue, Entry: e}}
			case 1:
				part = []Op{{Kind: OpDrop, Lease: e.Lease}, {Kind: OpEnqueue, Entry: e}}
			default:
				part = []Op{{Kind: OpDrop, Lease: e.Lease, Cancel: true}}
			}
			ops, inbox = append(ops, part...), append(inbox, EncodeOps(part)...)
		}
		for _, l := range bytes.Split(inbox, []byte("\n")) {
			line(t, l)
		}
		if got, err := DecodeOps(inbox); err != nil || !slices.Equal(got, ops) {
			t.Fatalf("%s: %+v, %v", inbox, got, err)
		}
	})
}

func TestALabelThatIsNoTextDamagesNothing(t *testing.T) {
	t.Parallel()
	e := Entry{Lease: id(1), Weight: 1, Limit: 1, Rev: 1, Label: strings.Repeat("\xff", MaxLabelBytes-1) + "x"}
	holders, _, err := DecodeState(EncodeState([]Entry{e}, nil))
	if err != nil || len(holders) != 1 || holders[0].Label != "?x" {
		t.Errorf("got %+v, %v", holders, err)
	}
}

// entry is a sound entry as stored; the tests damage it.
const entry = `{"lease":"ab000000000000000000000000000001","weight":1,"limit":2,"rev":5}`

func TestADamagedStateIsAnErrorNeverAFreeRecord(t *testing.T) {
	t.Parallel()
	if h, _, err := DecodeState([]byte(" {\n \"holders\": [" + entry + "] } \n")); err != nil || len(h) != 1 {
		t.Fatalf("the sound state with spaces is %+v, %v", h, err)
	}
	in := func(old, new string) string { return `{"holders":[` + strings.Replace(entry, old, new, 1) + `]}` }
	for name, state := range map[string]string{
		"empty":                    ``,
		"spaces":                   "  \n",
		"null":                     `null`,
		"a list":                   `[]`,
		"a string":                 `"{}"`,
		"a number":                 `0`,
		"cut off":                  `{"holders":[` + entry,
		"followed by another":      `{}{}`,
		"followed by rubbish":      `{} x`,
		"followed by zeros":        "{}\x00\x00",
		"an unknown field":         `{"guests":[]}`,
		"an unknown entry field":   in(`"rev"`, `"colour":"red","rev"`),
		"null holders":             `{"holders":null}`,
		"null tickets":             `{"tickets":null}`,
		"a null entry":             `{"holders":[null]}`,
		"holders emptied by null":  `{"holders":[` + entry + `],"holders":null}`,
		"holders emptied by a key": `{"holders":[` + entry + `],"holders":[]}`,
		"holders in another case":  `{"holders":[` + entry + `],"Holders":[]}`,
		"only another case":        `{"HOLDERS":[` + entry + `]}`,
		"a folded letter":          `{"holder` + "\u017f" + `":[` + entry + `]}`,
		"an escaped key":           `{"holders":[` + entry + `],"\u0068olders":[]}`,
		"a doubled entry field":    in(`"rev":5`, `"rev":5,"rev":6`),
		"a duplicate lease":        `{"holders":[` + entry + `,` + entry + `]}`,
		"a holder that also waits": `{"holders":[` + entry + `],"tickets":[` + entry + `]}`,
		"no lease":                 `{"holders":[{"rev":5}]}`,
		"a zero lease":             `{"holders":[{"lease":"00000000000000000000000000000000","rev":5}]}`,
		"a short lease":            in(`ab`, ``),
		"a lease that is no hex":   in(`ab`, `zz`),
		"an empty session":         in(`"rev"`, `"session":"","rev"`),
		"a zero session":           in(`"rev"`, `"session":"00000000000000000000000000000000","rev"`),
		"a null session":           in(`"rev"`, `"session":null,"rev"`),
		"weight 0":                 in(`"weight":1`, `"weight":0`),
		"a negative weight":        in(`"weight":1`, `"weight":-1`),
		"weight over limit":        in(`"weight":1`, `"weight":3`),
		"weight All over limit":    in(`"weight":1,`, ``),
		"limit 0":                  in(`"limit":2`, `"limit":0`),
		"limit over All":           in(`"limit":2`, `"limit":1073741825`),
		"a fraction":               in(`"limit":2`, `"limit":2.5`),
		"no revision":              in(`,"rev":5`, ``),
		"a negative revision":      in(`"rev":5`, `"rev":-1`),
		"a revision out of range":  in(`"rev":5`, `"rev":4611686018427387905`),
		"a revision of 65 bits":    in(`"rev":5`, `"rev":18446744073709551616`),
		"a revision as text":       in(`"rev":5`, `"rev":"5"`),
		"a negative hold":          in(`"rev"`, `"min_hold_us":-1,"rev"`),
		"a hold out of range":      in(`"rev"`, `"max_hold_us":9223372036854776,"rev"`),
		"a label too long":         in(`"rev"`, `"label":"`+strings.Repeat("x", MaxLabelBytes+1)+`","rev"`),
	} {
		holders, tickets, err := DecodeState([]byte(state))
		if err == nil || holders != nil || tickets != nil {
			t.Errorf("%s: %s decodes as %+v %+v, %v", name, state, holders, tickets, err)
		}
	}
}

func TestADamagedInboxIsAnError(t *testing.T) {
	t.Parallel()
	const drop = `{"drop":"ab000000000000000000000000000001"}`
	if ops, err := DecodeOps(nil); err != nil || ops != nil {
		t.Errorf("an empty inbox is %v, %v", ops, err)
	}
	for name, inbox := range map[string]string{
		"cut off at its end":        drop,
		"cut off in the second":     drop + "\n" + drop[:9],
		"an empty line":             drop + "\n\n",
		"nothing":                   "{}\n",
		"null":                      "null\n",
		"two operations in one":     `{"drop":"ab000000000000000000000000000001","cancel":"ab000000000000000000000000000001"}` + "\n",
		"a drop and a null enqueue": `{"drop":"ab000000000000000000000000000001","enqueue":null}` + "\n",
		"a doubled drop":            `{"drop":"ab000000000000000000000000000002","drop":"ab000000000000000000000000000001"}` + "\n",
		"another case":              `{"Drop":"ab000000000000000000000000000001"}` + "\n",
		"an unknown operation":      `{"steal":"ab000000000000000000000000000001"}` + "\n",
		"two on one line":           drop + drop + "\n",
		"a zero lease":              `{"drop":"00000000000000000000000000000000"}` + "\n",
		"an ungrantable request":    `{"enqueue":` + strings.Replace(entry, `"weight":1`, `"weight":3`, 1) + "}\n",
		"a request with no lease":   `{"enqueue":{"rev":5}}` + "\n",
	} {
		if ops, err := DecodeOps([]byte(inbox)); err == nil || ops != nil {
			t.Errorf("%s: %q decodes as %+v, %v", name, inbox, ops, err)
		}
	}
	if ops, err := DecodeOps([]byte(drop + "\n" + drop + "\n")); err != nil || len(ops) != 2 {
		t.Errorf("a post delivered twice is %+v, %v; want both", ops, err)
	}
}

func TestNoStoredInstantOverflows(t *testing.T) {
	t.Parallel()
	e := Entry{Lease: id(1), Weight: 1, Limit: 1, Rev: maxRevision, MinHold: time.Duration(maxHoldUS) * time.Microsecond}
	e.MaxHold = e.MinHold
	holders, _, err := DecodeState(EncodeState([]Entry{e}, nil))
	if err != nil || holders[0].Until() <= maxRevision || holders[0].Keep() <= maxRevision || maxRevision > math.MaxInt64-maxHoldUS {
		t.Errorf("%+v, %v", holders, err)
	}
}

func FuzzDecodeState(f *testing.F) {
	for _, s := range []string{``, `{}`, `null`, `{"holders":[` + entry + `]}`, `{"tickets":[` + entry + `],"holders":[]}`, `{"holders":[{"label":"\ud83d"}]}`, `{"a\"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		holders, tickets, err := DecodeState(state)
		if err != nil {
			if holders != nil || tickets != nil {
				t.Fatalf("entries beside the error %v", err)
			}
			return
		}
		h, q, err := DecodeState(EncodeState(holders, tickets))
		if err != nil || !slices.Equal(h, holders) || !slices.Equal(q, tickets) {
			t.Fatalf("%q re-encodes as another state: %v", state, err)
		}
		if len(holders)+len(tickets) == 0 && bytes.Contains(state, []byte(`"lease"`)) {
			t.Fatalf("%q looks free", state)
		}
	})
}

func FuzzDecodeOps(f *testing.F) {
	for _, s := range []string{``, "\n", `{"enqueue":` + entry + "}\n", `{"drop":"ab000000000000000000000000000001"}` + "\n", `{"cancel":"AB000000000000000000000000000001"}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, inbox []byte) {
		ops, err := DecodeOps(inbox)
		if err != nil {
			if ops != nil {
				t.Fatalf("operations beside the error %v", err)
			}
			return
		}
		if again, err := DecodeOps(EncodeOps(ops)); err != nil || !slices.Equal(again, ops) {
			t.Fatalf("%q re-encodes as other operations: %v", inbox, err)
		}
		if len(inbox) > 0 && len(ops) == 0 {
			t.Fatalf("%q looks empty", inbox)
		}
	})
}

func BenchmarkDecodeStateOfAFullRecord(b *testing.B) {
	holders := make([]Entry, MaxHolders)
	for i := range holders {
		holders[i] = Entry{Lease: NewID(), Session: NewID(), Weight: 1, Limit: All, Rev: 1_700_000_000_000_000}
	}
	state := EncodeState(holders, nil)
	b.SetBytes(int64(len(state)))
	for b.Loop() {
		if _, _, err := DecodeState(state); err != nil {
			b.Fatal(err)
		}
	}
}
