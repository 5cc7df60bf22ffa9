package drivertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/driver"
)

func listRules() []rule {
	return []rule{
		{name: "a list is in byte order and pages miss nothing and double nothing", check: func(e *env) {
			const n = driver.PageSize + 203
			all := make([]string, n)
			for i := range n {
				all[i] = fmt.Sprintf("%s/%04d", []string{"job", "Job", "jöb", "job-2", "zeta"}[i%5], (i*7919)%n)
			}
			e.takeAll(all, t0)
			slices.Sort(all)
			for _, most := range []int{0, driver.PageSize, driver.PageSize + 100, 250, 401} {
				size := most
				if size == 0 || size > driver.PageSize {
					size = driver.PageSize
				}
				var got []string
				for after := ""; len(got) < n; after = got[len(got)-1] {
					page := names(e.list(driver.Query{After: after, Max: most}))
					if len(page) != min(size, n-len(got)) {
						e.t.Fatalf("a page of %d names after %d of %d with Max %d", len(page), len(got), n, most)
					}
					got = append(got, page...)
				}
				e.same(fmt.Sprintf("all pages with Max %d", most), all, got)
			}
			rest := names(e.list(driver.Query{Prefix: "job/", After: "job/1000"}))
			want := slices.DeleteFunc(slices.Clone(all), func(s string) bool {
				return !strings.HasPrefix(s, "job/") || s <= "job/1000"
			})
			e.same("names with a prefix after a name that may not exist", want, rest)
		}},
		{name: "a list keeps to its prefix, its start and its size together", check: func(e *env) {
			e.takeAll([]string{"a/1", "a/2", "a/3", "a", "a0", "b/1", "A/1", "a/"}, t0)
			for _, c := range []struct {
				q    driver.Query
				want []string
			}{
				{driver.Query{Prefix: "a/"}, []string{"a/", "a/1", "a/2", "a/3"}},
				{driver.Query{Prefix: "a/", After: "a/1"}, []string{"a/2", "a/3"}},
				{driver.Query{Prefix: "a/", After: "a/11"}, []string{"a/2", "a/3"}},
				{driver.Query{Prefix: "a/", After: "a/1", Max: 1}, []string{"a/2"}},
				{driver.Query{Prefix: "a/", After: "b"}, nil},
				{driver.Query{Prefix: "a/", After: "A"}, []string{"a/", "a/1", "a/2", "a/3"}},
				{driver.Query{Prefix: "c"}, nil},
				{driver.Query{After: "a0"}, []string{"b/1"}},
				{driver.Query{Max: 3}, []string{"A/1", "a", "a/"}},
			} {
				e.same(fmt.Sprintf("names for %+v", c.q), c.want, names(e.list(c.q)))
			}
		}},
		{name: "a list of busy records leaves out free ones only", check: func(e *env) {
			e.put(driver.Record{Name: "free", Revision: t0})
			e.put(driver.Record{Name: "free with note", Revision: t0, Note: &driver.Note{Data: []byte("x"), Token: t0}})
			e.put(driver.Record{Name: "held", Revision: t0, Holders: []driver.Entry{fullEntry(1)}})
			e.put(driver.Record{Name: "queued", Revision: t0, Tickets: []driver.Entry{fullEntry(1)}})
			e.put(driver.Record{Name: "released", Revision: t0, Holders: []driver.Entry{fullEntry(1)}})
			e.release("released", t0)
			e.same("busy", []string{"held", "queued"}, names(e.list(driver.Query{Busy: true})))
			e.same("busy with a prefix", []string{"queued"}, names(e.list(driver.Query{Busy: true, Prefix: "q"})))
			e.same("busy, the first", []string{"held"}, names(e.list(driver.Query{Busy: true, Max: 1})))
			all := []string{"free", "free with note", "held", "queued", "released"}
			e.same("all", all, names(e.list(driver.Query{})))
		}},
		{name: "a list of old records leaves out those at the bound and above", check: func(e *env) {
			e.takeAll([]string{"a", "b", "c", "d"}, t0) // t0 to t0+3
			e.release("a", t0)                          // t0+1
			e.same("before t0+2", []string{"a", "b"}, names(e.list(driver.Query{Before: t0 + 2})))
			e.same("before t0+1", []string{}, names(e.list(driver.Query{Before: t0 + 1})))
			e.same("busy before t0+3", []string{"b", "c"}, names(e.list(driver.Query{Before: t0 + 3, Busy: true})))
			e.same("before t0+4 after b", []string{"c", "d"}, names(e.list(driver.Query{Before: t0 + 4, After: "b"})))
		}},
		{name: "a list shows records whole", check: func(e *env) {
			rec := e.put(driver.Record{
				Name: "whole", Revision: t0, Holders: []driver.Entry{fullEntry(1), fullEntry(2)},
				Tickets: []driver.Entry{fullEntry(3)}, Note: &driver.Note{Data: []byte("note"), Token: t0 - 1},
			})
			rec.Inbox = driver.EncodeOps([]driver.Op{drop()})
			if !e.post("whole", rec.Inbox, t0+10) {
				e.t.Fatal("Post to a held record was refused")
			}
			rec.Revision++
			e.same("the record as listed", []driver.Record{rec}, e.list(driver.Query{}))
		}},
	}
}
