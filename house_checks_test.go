package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The checks of the house test. Each complains about every place that breaks its rule.

// mayImport says what the non-test files of a folder may import of this module; ok is false for an unknown folder.
func mayImport(dir, imported string) (allowed, ok bool) {
	top, _, _ := strings.Cut(dir, "/")
	is := func(list ...string) bool { return slices.Contains(list, imported) }
	switch {
	case dir == ".":
		return is("driver", "internal/arbiter"), true
	case dir == "driver":
		return false, true
	case dir == "internal/arbiter", dir == "drivertest", top == "internal":
		return is("driver"), true
	case backend(dir):
		return is("driver"), true
	case dir == "openurl":
		return is("driver") || backend(imported), true
	case dir == "cron", dir == "split":
		return is("."), true
	case top == "cmd":
		return is(".", "driver", "openurl", "cron", "split") || strings.HasPrefix(imported, dir), true
	case top == "examples":
		return is(".", "openurl", "cron", "split"), true
	case top == "integration": // a module of its own
		return true, true
	}
	return false, false
}

func backend(dir string) bool { return strings.HasPrefix(dir, "hold") && !strings.Contains(dir, "/") }

func checkArrows(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		if s.test {
			continue
		}
		if _, ok := mayImport(s.dir, ""); !ok {
			complain(s.path, "the folder has no place in the arrows; give it one in mayImport of house_test.go")
		}
		for _, spec := range s.file.Imports {
			p := strings.Trim(spec.Path.Value, `"`)
			rel, ours := strings.CutPrefix(p, module)
			if !ours {
				continue
			}
			imported := path.Clean("." + rel)
			if allowed, ok := mayImport(s.dir, imported); ok && !allowed {
				complain(h.at(spec), fmt.Sprintf("%s imports %s", s.dir, p))
			}
		}
	}
}

func checkPackageComments(h *house, complain func(where, what string)) {
	comments, first := map[string][]string{}, map[string]string{}
	for _, s := range h.files {
		if s.test {
			continue
		}
		if first[s.dir] == "" {
			first[s.dir] = s.path
		}
		if s.file.Doc != nil {
			comments[s.dir] = append(comments[s.dir], s.path)
		}
	}
	for dir, p := range first {
		if n := len(comments[dir]); n != 1 {
			complain(p, fmt.Sprintf("its package has %d package comments %v, want one", n, comments[dir]))
		}
	}
}

// checkVariables forbids what makes a package variable change: a value that is there to be changed, and every write.
func checkVariables(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !strings.Contains(s.textOf(h, g.Doc), "//go:embed") {
				for _, spec := range g.Specs {
					checkVariable(s, spec.(*ast.ValueSpec), func(what string) { complain(h.at(spec), what) })
				}
			}
		}
	}
	h.each(noTest, func(s *source, n ast.Node, at string) {
		written := func(list ...ast.Expr) {
			for _, x := range list {
				if name := s.packageVariable(x); name != "" {
					complain(at, "writes the package variable "+name)
				}
			}
		}
		switch n := n.(type) {
		case *ast.AssignStmt:
			written(n.Lhs...)
		case *ast.IncDecStmt:
			written(n.X)
		case *ast.RangeStmt:
			written(n.Key, n.Value)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				written(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear", "copy"}, f.Name) && len(n.Args) > 0 {
				written(n.Args[0])
			}
		}
	})
}

func (s *source) textOf(h *house, doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	return s.text[h.fset.Position(doc.Pos()).Offset:h.fset.Position(doc.End()).Offset]
}

func checkVariable(s *source, spec *ast.ValueSpec, complain func(what string)) {
	if len(spec.Names) == 1 && spec.Names[0].Name == "_" {
		return
	}
	for _, name := range spec.Names {
		if name.IsExported() && !strings.HasPrefix(name.Name, "Err") {
			complain("exports the variable " + name.Name + ", which anybody can write")
		}
	}
	if len(spec.Values) == 0 {
		complain(spec.Names[0].Name + " has no value, so it is there to be written")
	}
	for _, v := range spec.Values {
		ref, isRef := v.(*ast.UnaryExpr)
		call, isCall := v.(*ast.CallExpr)
		var f *ast.Ident
		if isCall {
			f, _ = call.Fun.(*ast.Ident)
		}
		lit, isLit := v.(*ast.CompositeLit)
		if isRef && ref.Op == token.AND || f != nil && (f.Name == "make" || f.Name == "new") ||
			isLit && (s.calls(lit.Type, "sync") != "" || s.calls(lit.Type, "sync/atomic") != "") {
			complain(spec.Names[0].Name + " has a value that is there to be changed")
		}
	}
}

// packageVariable names the package variable, of this package or another, that an expression is or is part of.
func (s *source) packageVariable(x ast.Expr) string {
	for {
		switch e := x.(type) {
		case *ast.ParenExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.CompositeLit, nil:
			return ""
		case *ast.SelectorExpr:
			if id, ok := e.X.(*ast.Ident); ok {
				if p, ok := s.info.Uses[id].(*types.PkgName); ok {
					return p.Imported().Path() + "." + e.Sel.Name
				}
			}
			x = e.X
		case *ast.Ident:
			if v, ok := s.info.Uses[e].(*types.Var); ok && s.pkg != nil && v.Parent() == s.pkg.Scope() {
				return e.Name
			}
			return ""
		default:
			return ""
		}
	}
}

func checkBackground(h *house, complain func(where, what string)) {
	lifetimes := 0
	h.each(all, func(s *source, n ast.Node, at string) {
		switch s.calls(n, "context") {
		case "TODO":
			complain(at, "calls context.TODO")
		case "Background":
			if s.path == "client.go" {
				lifetimes++
			}
			if !s.test && !strings.HasPrefix(s.dir, "cmd") && (s.path != "client.go" || lifetimes > 1) {
				complain(at, "calls context.Background")
			}
		}
	})
}

// checkComments wants a comment on every exported name. Error and String are documented by their interfaces.
func checkComments(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		if s.test || s.file.Name.Name == "main" {
			continue
		}
		need := func(n ast.Node, name string, docs ...*ast.CommentGroup) {
			if ast.IsExported(name) && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
				complain(h.at(n), name+" has no comment")
			}
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				hidden := d.Recv != nil && !ast.IsExported(receiver(d)) || d.Name.Name == "Error" || d.Name.Name == "String"
				if !hidden {
					need(d, d.Name.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						need(spec, spec.Name.Name, d.Doc, spec.Doc, spec.Comment)
						if i, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() {
							for _, m := range i.Methods.List {
								if len(m.Names) == 1 {
									need(m, m.Names[0].Name, m.Doc, m.Comment)
								}
							}
						}
					case *ast.ValueSpec:
						need(spec, spec.Names[0].Name, d.Doc, spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	for {
		switch e := x.(type) {
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// checkSkips forbids Skip of a *testing.T, B or TB. A rapid.T's Skip only rejects a draw.
func checkSkips(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		testing := map[token.Pos]bool{} // names of parameters
		ast.Inspect(s.file, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok {
				t := f.Type
				if star, ok := t.(*ast.StarExpr); ok {
					t = star.X
				}
				for _, name := range f.Names {
					testing[name.Pos()] = s.calls(t, "testing") != ""
				}
			}
			return true
		})
		h.each(func(x *source) bool { return x == s }, func(s *source, n ast.Node, at string) {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return
			}
			x, isName := sel.X.(*ast.Ident)
			if f, ok := sel.X.(*ast.SelectorExpr); ok { // e.t.Skip
				x, isName = f.Sel, true
			}
			if !isName {
				return
			}
			if o := s.info.Uses[x]; o == nil || testing[o.Pos()] {
				complain(at, "skips a test")
			}
		})
	}
}

func features() []string {
	return []string{
		"Client_Lock", "Client_TryLock", "Client_RLock", "Client_Semaphore", "Client_Do", "Client_TryDo", "Client_Inspect",
		"Client_List", "Client_Break", "Client_Close", "Lease_SetNote", "MaxHold", "MinHold", "Events", "Options",
	}
}

func checkExamples(h *house, complain func(where, what string)) {
	var have []string
	for _, s := range h.files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.dir == "." && s.test && strings.HasPrefix(f.Name.Name, "Example") {
				have = append(have, f.Name.Name)
			}
		}
	}
	for _, want := range features() {
		name := "Example" + want
		if !slices.ContainsFunc(have, func(x string) bool { return x == name || strings.HasPrefix(x, name+"_") }) {
			complain("example_test.go", "there is no "+name)
		}
	}
}

var (
	unfinished  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	replacement = regexp.MustCompile(`(?m)^\s*replace\b`)
)

func checkComment(what *regexp.Regexp) func(h *house, complain func(where, what string)) {
	return func(h *house, complain func(where, what string)) {
		for _, s := range h.files {
			for _, group := range s.file.Comments {
				for _, c := range group.List {
					if found := what.FindString(c.Text); found != "" {
						complain(h.at(c), "says "+found)
					}
				}
			}
		}
	}
}

func checkInit(h *house, complain func(where, what string)) {
	h.each(noTest, func(_ *source, n ast.Node, at string) {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			complain(at, "has an init function")
		}
	})
}

func checkGo(h *house, complain func(where, what string)) {
	h.each(all, func(_ *source, n ast.Node, at string) {
		if _, ok := n.(*ast.GoStmt); ok {
			complain(at, "starts a goroutine with a go statement")
		}
	})
}

func checkSleep(h *house, complain func(where, what string)) {
	h.each(noTest, func(s *source, n ast.Node, at string) {
		if s.calls(n, "time") == "Sleep" {
			complain(at, "calls time.Sleep")
		}
	})
}

func checkReplace(h *house, complain func(where, what string)) {
	for p, text := range h.scripts {
		if replacement.MatchString(text) {
			complain(p, "has a replace directive")
		}
	}
}

const maxLines = 500

func checkLength(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		if n := strings.Count(s.text, "\n"); n > maxLines {
			complain(s.path, fmt.Sprintf("has %d lines", n))
		}
	}
}

func checkPackageNames(h *house, complain func(where, what string)) {
	for _, s := range h.files {
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		if slices.Contains([]string{"util", "utils", "common", "types", "helper", "helpers", "misc"}, name) {
			complain(s.path, "is in a package named "+name)
		}
	}
}
