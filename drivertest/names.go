package drivertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/driver"
)

func nameRules() []rule {
	return []rule{
		{name: "names are compared byte by byte", check: distinctNames},
		{name: "a listed prefix is taken literally", check: func(e *env) {
			all := trickyNames()
			e.takeAll(all, t0)
			for _, prefix := range []string{
				"%", "a%", "_", "a_", `\`, `a\`, "'", `"`, "*", "a*", "?", "[", "[a", "$", ".", "^a", "(?i)A", "A", "a",
				" ", "\n", "\u00e9", "e", "e\u0301", "\U0001F512", "../", "a/", strings.Repeat("n", 254), "\U0010FFFF", "\u200f",
			} {
				var want []string
				for _, name := range all {
					if strings.HasPrefix(name, prefix) {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				e.same(fmt.Sprintf("names with the prefix %q", prefix), want, names(e.list(driver.Query{Prefix: prefix})))
			}
		}},
	}
}

// trickyNames are names that a collation, a pattern, a trimmed column, a path or a careless statement would mix up.
func trickyNames() []string {
	long := strings.Repeat("n", 254)
	return []string{
		"a", "A", "b", "B", "aa", "Aa", "a ", " a", "a  ", " ", "  ", "a\t", "\ta", "a\n", "\n", "a\r\n", "a\u00a0",
		"\u00e9", "\u00c9", "e\u0301", "e", "ß", "ss", "ẞ", "ı", "i", "I", "İ", "\u00e5", "\u00c5", "\u212b", "A\u030a", "ﬁ", "fi", "ｱ", "ア", "あ", "ぁ",
		"\U0001F512", "\U0001F513", "\U0001F512\uFE0F", "😀", "😁", "\U0010FFFF", "\uFFFD", "\uFEFFa",
		"a\u200d", "a\u200b", "\u200fa", "a\u200f", "\u202ea", "a\u00ad", "\x01", "\x7f", "a\x1b[31m",
		long, long + "n", long + "o", long + "N", long + " ", strings.Repeat("é", 127), strings.Repeat("é", 127) + "x",
		"a'", `a"`, `a\`, `a\\`, `\`, `\n`, `\%`, "a`", "''", `'); DROP TABLE holdfast_records;--`, "a;b", "a--b", "/*a*/",
		"%", "%a", "a%", "a%b", "_", "a_", "a_b", "axb", "*", "a*", "a?", "?", "[a]", "[", "^a", "a$", "(?i)a", ".*",
		"$", "$a", "$where", ".", "..", "a.b", "a.", ".a", "../x", "a/b", "a//b", "/", "a/", "c:\\x", "a:b", "#", "&", "<b>",
		"0", "00", "0.0", "1", "01", "1e0", "null", "NULL", "true", "NaN", "{}", `{"a":1}`, "[]", "0x61", `\x61`, "_id",
	}
}

// takeAll grabs all those names, which are absent, in one batch with rising seeds.
func (e *env) takeAll(all []string, seed driver.Micros) []driver.Record {
	e.t.Helper()
	var stored []driver.Record
	for part := range slices.Chunk(all, driver.MaxBatch) {
		asks := make([]driver.Ask, len(part))
		for i, name := range part {
			asks[i] = driver.Ask{Name: name, Seed: seed, Holder: holder()}
			stored = append(stored, held(name, seed, asks[i].Holder))
			seed++
		}
		taken, err := e.s.Grab(e.ctx, asks)
		if err != nil || len(taken) != len(asks) {
			e.t.Fatalf("Grab of %d absent names: %d answers, %v", len(asks), len(taken), err)
		}
		for i, got := range taken {
			if !got {
				e.t.Fatalf("Grab of the absent name %q was refused", asks[i].Name)
			}
		}
	}
	return stored
}

func distinctNames(e *env) {
	all := trickyNames()
	stored := e.takeAll(all, t0)
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(all) {
		e.t.Fatal("the rule's own names are not distinct")
	}
	e.sameBatch(stored)
	e.same("all names as listed", sorted, names(e.list(driver.Query{})))

	ops := driver.EncodeOps([]driver.Op{drop()})
	for i, name := range all {
		rec := &stored[i]
		e.stored(fmt.Sprintf("the record of %q by itself", name), *rec)
		if e.grab(name, t0+1e6, holder()) {
			e.t.Fatalf("Grab took the held name %q", name)
		}
		if !e.post(name, ops, t0+1e9) {
			e.t.Fatalf("Post to the held name %q was refused", name)
		}
		rec.Inbox = ops
		rec.Revision++
		if i%2 == 0 {
			note := &driver.Note{Data: []byte(name), Token: rec.Revision}
			c := driver.Change{Name: name, Old: rec.Revision, New: rec.Revision + 1000, Note: note}
			if !e.swap(c) {
				e.t.Fatalf("Swap of %q from its revision was refused", name)
			}
			*rec = driver.Record{Name: name, Revision: c.New, Note: note}
		}
	}
	e.sameBatch(stored)
	slices.SortFunc(stored, func(a, b driver.Record) int { return strings.Compare(a.Name, b.Name) })
	e.same("all records as listed", stored, e.list(driver.Query{}))
	for i, rec := range stored {
		got := e.list(driver.Query{After: rec.Name, Max: 1})
		e.same(fmt.Sprintf("the record listed after %q", rec.Name), stored[i+1:min(i+2, len(stored))], got)
	}
}
