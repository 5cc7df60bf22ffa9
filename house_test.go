package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The house test enforces the mechanical rules of this module, with the reason in the failure. It reads source text
// only: no package is built for it, and imports are taken to be empty packages.

const module = "github.com/holdfastdb/holdfast"

// house is the source of a module, by path.
type house struct {
	fset    *token.FileSet
	files   []*source
	scripts map[string]string // go.mod files
}

type source struct {
	path, dir, text string
	file            *ast.File
	test            bool        // tests, and what only they build
	info            *types.Info // shared by the files of one package
	pkg             *types.Package
}

type houseRule struct {
	name  string
	why   string
	check func(h *house, complain func(where, what string))
	wrong []map[string]string // small modules that break the rule
	right map[string]string   // one that keeps it
}

// moduleTexts reads every Go file and go.mod below the module's root.
func moduleTexts() (map[string]string, error) {
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || p == "bin"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".go" && d.Name() != "go.mod":
			return nil
		}
		text, err := os.ReadFile(p)
		texts[filepath.ToSlash(p)] = string(text)
		return err
	})
	return texts, err
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	texts, err := moduleTexts()
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHouse(texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range houseRules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range h.complaints(r) {
				t.Errorf("%s\n\tthe rule: %s", c, r.why)
			}
		})
	}
}

func TestHouseRulesFindWhatTheyForbid(t *testing.T) {
	t.Parallel()
	for _, r := range houseRules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for i, wrong := range r.wrong {
				if h, err := readHouse(wrong); err != nil {
					t.Error(err)
				} else if len(h.complaints(r)) == 0 {
					t.Errorf("snippet %d breaks the rule and passes: %v", i, wrong)
				}
			}
			if h, err := readHouse(r.right); err != nil {
				t.Error(err)
			} else if got := h.complaints(r); len(got) > 0 {
				t.Errorf("the right snippet fails: %v", got)
			}
		})
	}
}

// TestGuaranteesNameRealTests keeps docs/GUARANTEES.md true: a test or a rule of drivertest that it names exists.
func TestGuaranteesNameRealTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := moduleTexts()
	if err != nil {
		t.Fatal(err)
	}
	var code, rules strings.Builder
	for p, text := range texts {
		code.WriteString(text)
		if path.Dir(p) == "drivertest" {
			rules.WriteString(text)
		}
	}
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1) {
		if !strings.Contains(code.String(), "\nfunc "+name+"(") {
			t.Errorf("there is no %s", name)
		}
	}
	for _, rule := range regexp.MustCompile(`"a [^"\n]{20,}"|"[a-z0-9 ,]{20,}"`).FindAllString(string(text), -1) {
		if !strings.Contains(rules.String(), rule) {
			t.Errorf("drivertest has no rule %s", rule)
		}
	}
}

func readHouse(texts map[string]string) (*house, error) {
	h := &house{fset: token.NewFileSet(), scripts: map[string]string{}}
	packages := map[string][]*source{}
	for p, text := range texts {
		if path.Base(p) == "go.mod" {
			h.scripts[p] = text
			continue
		}
		file, err := parser.ParseFile(h.fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s := &source{path: p, dir: path.Dir(p), text: text, file: file, test: strings.HasSuffix(p, "_test.go")}
		h.files = append(h.files, s)
		key := s.dir + " " + file.Name.Name
		packages[key] = append(packages[key], s)
	}
	slices.SortFunc(h.files, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	for _, list := range packages {
		info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		var files []*ast.File
		for _, s := range list {
			files = append(files, s.file)
		}
		// Errors are expected: the imports are empty. What is declared in the package itself is resolved all the same.
		conf := types.Config{Importer: emptyImports{}, Error: func(error) {}}
		pkg, _ := conf.Check(list[0].dir, h.fset, files, info)
		for _, s := range list {
			s.info, s.pkg = info, pkg
		}
	}
	return h, nil
}

type emptyImports struct{}

func (emptyImports) Import(p string) (*types.Package, error) {
	pkg := types.NewPackage(p, path.Base(p))
	pkg.MarkComplete()
	return pkg, nil
}

func (h *house) complaints(r houseRule) []string {
	var list []string
	r.check(h, func(where, what string) { list = append(list, where+": "+what) })
	return list
}

// each calls look for every node of the files that want lets through.
func (h *house) each(want func(*source) bool, look func(s *source, n ast.Node, at string)) {
	for _, s := range h.files {
		if !want(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if n != nil {
				look(s, n, h.at(n))
			}
			return true
		})
	}
}

func (h *house) at(n ast.Node) string {
	p := h.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

func all(*source) bool      { return true }
func noTest(s *source) bool { return !s.test }

// calls returns the name of what n names in the package imported as pkgPath ("Sleep" for time.Sleep), or "".
func (s *source) calls(n ast.Node, pkgPath string) string {
	if sel, ok := n.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			if p, ok := s.info.Uses[x].(*types.PkgName); ok && p.Imported().Path() == pkgPath {
				return sel.Sel.Name
			}
		}
	}
	return ""
}

type files = map[string]string

func houseRules() []houseRule {
	return []houseRule{
		{
			name: "imports follow the arrows",
			why: "cmd, examples, cron, split -> holdfast -> internal/arbiter, driver <- backends; only openurl knows the backends. " +
				"So a program links one database's driver, and a backend can be read alone",
			check: checkArrows,
			wrong: []files{
				{"holdmem/a.go": "package holdmem\nimport _ \"" + module + "\"\n"},
				{"holdmem/a.go": "package holdmem\nimport _ \"" + module + "/holdsqlite\"\n"},
				{"cmd/holdfast/a.go": "package main\nimport _ \"" + module + "/holdmem\"\n"},
				{"driver/a.go": "package driver\nimport _ \"" + module + "/internal/arbiter\"\n"},
				{"drivertest/a.go": "package drivertest\nimport _ \"" + module + "\"\n"},
				{"a.go": "package holdfast\nimport _ \"" + module + "/holdmem\"\n"},
				{"cron/a.go": "package cron\nimport _ \"" + module + "/driver\"\n"},
				{"elsewhere/a.go": "package elsewhere\n"},
			},
			right: files{
				"openurl/a.go":      "package openurl\nimport _ \"" + module + "/holdmem\"\n",
				"a_test.go":         "package holdfast_test\nimport _ \"" + module + "/holdmem\"\n",
				"cmd/holdfast/a.go": "package main\nimport _ \"" + module + "/openurl\"\n",
			},
		},
		{
			name:  "a package has one package comment",
			why:   "readers start there; two would be shown glued together, in the order of file names",
			check: checkPackageComments,
			wrong: []files{
				{"a.go": "package a\n"},
				{"a.go": "// Package a is.\npackage a\n", "b.go": "// Package a is too.\npackage a\n"},
			},
			right: files{"a.go": "// Package a is.\npackage a\n", "b.go": "package a\n"},
		},
		{
			name:  "no init",
			why:   "importing a package must do nothing; work belongs where a caller can see it and its error",
			check: checkInit,
			wrong: []files{{"a.go": "package a\nfunc init() {}\n"}},
			right: files{"a.go": "package a\ntype t int\nfunc (t) init() {}\n"},
		},
		{
			name:  "package variables are never written",
			why:   "two clients in one program must not meet in a variable; only sentinels, assertions and constant tables may stand there",
			check: checkVariables,
			wrong: []files{
				{"a.go": "package a\nvar n = 1\nfunc f() { n = 2 }\n"},
				{"a.go": "package a\nvar n = 1\n", "b.go": "package a\nfunc f() { n++ }\n"},
				{"a.go": "package a\nvar m = map[int]int{}\nfunc f() { m[1] = 2 }\n"},
				{"a.go": "package a\nvar m = map[int]int{1: 1}\nfunc f() { delete(m, 1) }\n"},
				{"a.go": "package a\nvar n = 1\nfunc f() *int { return &n }\n"},
				{"a.go": "package a\nvar n int\n"},
				{"a.go": "package a\nvar m = make(map[int]int)\n"},
				{"a.go": "package a\ntype t struct{}\nvar x = &t{}\n"},
				{"a.go": "package a\nimport \"sync\"\nvar mu = sync.Mutex{}\n"},
				{"a.go": "package a\nvar Names = []string{}\n"},
				{"a.go": "package a\nimport \"net/http\"\nfunc f() { http.DefaultClient = nil }\n"},
				{"a.go": "package a\nvar n = 1\nfunc f() { for n = range 3 { _ = n } }\n"},
			},
			right: files{
				"a.go":      "package a\nimport \"errors\"\nvar _ I = T{}\nvar ErrX = errors.New(\"x\")\nvar table = []int{1}\nfunc f() { table := table[0]; table = 2; _ = table }\n",
				"a_test.go": "package a\nvar n int\nfunc g() { n = 2 }\n",
			},
		},
		{
			name:  "goroutines start with WaitGroup.Go",
			why:   "who starts a goroutine waits for it, so that Close and tests end with none left",
			check: checkGo,
			wrong: []files{{"a.go": "package a\nfunc f() { go f() }\n"}, {"a_test.go": "package a\nfunc f() { go f() }\n"}},
			right: files{"a.go": "package a\nimport \"sync\"\nfunc f() { var wg sync.WaitGroup; wg.Go(f); wg.Wait() }\n"},
		},
		{
			name:  "no time.Sleep outside tests",
			why:   "a sleep does not hear that its context has ended; use a timer and select",
			check: checkSleep,
			wrong: []files{{"a.go": "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"}, {"a.go": "package a\nimport t \"time\"\nvar f = t.Sleep\n"}},
			right: files{"a_test.go": "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"},
		},
		{
			name:  "contexts come from the caller",
			why:   "a context made up inside cannot be cancelled by anybody; clean-up uses context.WithoutCancel, a client's lifetime in client.go is the one exception",
			check: checkBackground,
			wrong: []files{
				{"a.go": "package a\nimport \"context\"\nvar f = context.Background\n"},
				{"client.go": "package a\nimport \"context\"\nvar f, g = context.Background(), context.Background()\n"},
				{"cmd/a.go": "package main\nimport \"context\"\nvar f = context.TODO()\n"},
			},
			right: files{
				"client.go": "package a\nimport \"context\"\nvar f = context.Background()\n",
				"a_test.go": "package a\nimport \"context\"\nvar f = context.Background()\n",
				"cmd/a.go":  "package main\nimport \"context\"\nvar f = context.Background()\n",
			},
		},
		{
			name:  "every exported name has a comment",
			why:   "a caller who has read it can stop reading: what it does, what it leaves behind on failure, which error when",
			check: checkComments,
			wrong: []files{
				{"a.go": "package a\nfunc F() {}\n"},
				{"a.go": "package a\ntype T int\n"},
				{"a.go": "package a\nconst C = 1\n"},
				{"a.go": "package a\n// T is.\ntype T int\nfunc (*T) M() {}\n"},
				{"a.go": "package a\n// I is.\ntype I interface { M() }\n"},
			},
			right: files{"a.go": "package a\n// T is.\ntype T int\nfunc (T) String() string { return \"\" }\ntype t int\nfunc (t) M() {}\nconst C = 1 // is\n"},
		},
		{
			name:  "no replace in go.mod",
			why:   "users do not get it, so they would build something else than the tests did",
			check: checkReplace,
			wrong: []files{{"go.mod": "module a\nreplace b => ../b\n"}, {"x/go.mod": "module a\n  replace (\n)\n"}},
			right: files{"go.mod": "module a\nrequire b v1.0.0\n"},
		},
		{
			name:  "a file has at most 500 lines",
			why:   "one idea a file; what does not fit is two ideas",
			check: checkLength,
			wrong: []files{{"a.go": "package a\n" + strings.Repeat("\n", maxLines)}},
			right: files{"a.go": "package a\n" + strings.Repeat("\n", maxLines-1)},
		},
		{
			name:  "a package is named for what it gives",
			why:   "a name that fits everything collects everything",
			check: checkPackageNames,
			wrong: []files{{"a/a.go": "package util\n"}, {"a/a_test.go": "package helpers_test\n"}},
			right: files{"a/a.go": "package arbiter\n"},
		},
		{
			name:  "no test is skipped",
			why:   "a missing server or hook is a failure: what was skipped in silence is not tested",
			check: checkSkips,
			wrong: []files{
				{"a_test.go": "package a\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip() }\n"},
				{"a_test.go": "package a\nimport \"testing\"\ntype e struct { t testing.TB }\nfunc (x *e) f() { x.t.Skipf(\"\") }\n"},
			},
			right: files{"a_test.go": "package a\nimport \"pgregory.net/rapid\"\nfunc f(t *rapid.T) { t.Skip() }\n"},
		},
		{
			name:  "nothing is marked unfinished",
			why:   "what is left to do is an issue, where it is seen and planned",
			check: checkComment(unfinished),
			wrong: []files{{"a.go": "package a\n// TO" + "DO: later\n"}, {"a.go": "package a\n/* FIX" + "ME */\n"}},
			right: files{"a.go": "package a\n// Done.\n"},
		},
		{
			name:  "every feature of the root package has an example",
			why:   "examples are what users copy, and tests run them",
			check: checkExamples,
			wrong: []files{{"example_test.go": "package a\nfunc ExampleClient_Lock() {}\n"}},
			right: exampleOfEach(),
		},
	}
}

func exampleOfEach() files {
	text := "package a\n"
	for _, f := range features() {
		text += "func Example" + f + "_short() {}\n"
	}
	return files{"example_test.go": text}
}
